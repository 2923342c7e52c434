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


def choose_limits(sources: Sources) -> Limits:
    """The limits of a launch; LaunchError for one that is too small, or that nobody would heed."""
    chosen: dict[str, float] = {}
    for key, (limit, least_s) in TIMEOUTS.items():
        claims = sources.claim("--" + key.replace("_", "-"), key)
        for claim in claims:
            assert isinstance(claim.value, float)
            if not least_s <= claim.value < math.inf:
                unit = "second" if least_s == 1 else "seconds"
                raise LaunchError(f"{claim.text}: expected at least {least_s:g} {unit}")
        if claims:
            assert isinstance(claims[0].value, float)
            chosen[limit] = claims[0].value
    return replace(Limits(), **chosen)
