"""How long a job may stand still or be silent: from flags and [cluster] to limits."""

from __future__ import annotations

import math
from dataclasses import replace

from alphazero.cluster.plan.claims import Sources
from alphazero.cluster.plan.launch_plan import Limits
from alphazero.errors import LaunchError

# By key: the limit, and its least value in seconds. Beats come each second; a host or head is not gone when
# one of them is late.
TIMEOUTS = {
    "hang_timeout": ("step_s", 1.0),
    "start_timeout": ("start_s", 1.0),
    "pause_timeout": ("pause_s", 1.0),
    "games_timeout": ("games_s", 1.0),
    "shutdown_timeout": ("shutdown_s", 1.0),
    "silence_timeout": ("silence_s", 3.0),
}
HANG_LIMITS = ("step_s", "start_s", "pause_s", "games_s")


def choose_limits(sources: Sources) -> Limits:
    """The limits of a launch; LaunchError for one that is too small, or that nobody would heed."""
    elastic = sources.request.elastic is not None
    chosen: dict[str, float] = {}
    if elastic:
        # Ranks change as machines come and go: torchrun sees failures, nobody looks for hangs.
        chosen = dict.fromkeys(HANG_LIMITS, math.inf)
    for key, (limit, least_s) in TIMEOUTS.items():
        flag = "--" + key.replace("_", "-")
        if elastic and limit in HANG_LIMITS:
            if getattr(sources.request, key) is not None:
                raise LaunchError(f"{flag} contradicts --elastic, where nobody looks for hangs")
            continue
        claims = sources.claim(flag, key)
        for claim in claims:
            assert isinstance(claim.value, float)
            if not least_s <= claim.value < math.inf:
                unit = "second" if least_s == 1 else "seconds"
                raise LaunchError(f"{claim.text}: expected at least {least_s:g} {unit}")
        if claims:
            assert isinstance(claims[0].value, float)
            chosen[limit] = claims[0].value
    return replace(Limits(), **chosen)
