"""What must be equal on all ranks before they train: settings, versions, games and the bytes of the data.

Nodes that are started by hand may get different command lines. Some differences would train to the end and
mean nothing (another batch size or seed), others hang in a collective (another precision or interval).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from alphazero.base.errors import AlphaZeroError, ConfigError, DataError
from alphazero.base.section import Scope, json_ready, scope_of
from alphazero.base.text import counted
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import MANIFEST_NAME, GameStore, ShardView
from alphazero.data.store.verification import Verification
from alphazero.games.outside.names import OPENSPIEL
from alphazero.machine.environment import commit_of, version_of
from alphazero.play.selfplay import tables_of
from alphazero.run.directory import RunDirectory
from alphazero.settings.load import SECTIONS, Config, to_table
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime
from alphazero.training.start.run_start import RankContext, Request

Facts = Mapping[str, Any]

# A difference in these is a warning, never an error.
ONLY_WARNED_OF = frozenset({"commit"})
MOST_NAMED = 8
COMPARED_PACKAGES = ("alphazero", "torch", "deepspeed")
MEETING_S = 300.0  # ranks have joined the process group: they are seconds apart, even on a busy host


def compare_ranks(config: Config, request: Request, rank: RankContext) -> list[str]:
    """Warnings about what differs between ranks. Collective, and before all that depends on settings.

    Raises ConfigError on all ranks where a difference matters and the request is to check that.
    """
    runtime, exchange = rank.runtime, rank.exchange
    exchange.meet(MEETING_S)
    start = {name: getattr(request, name) for name in ("resume", "fresh_start", "accept_new_data")}
    given = {f"{name} given": bool(getattr(config.data, name)) for name in ("data", "validation_data")}
    asked = {**start, **given, "device": runtime.device.type, "backend": runtime.backend}
    versions: dict[str, str] = {}
    if runtime.local_world_size < runtime.world_size:  # ranks of one host run the same files
        of_game = ["open_spiel"] if config.network.game.startswith(OPENSPIEL) else []
        versions = {name: version_of(name) for name in [*COMPARED_PACKAGES, *of_game]}
        versions["commit"] = commit_of()
    facts = exchange.gather(facts_of(config, asked, versions))
    return check_agreement(facts, exchange.gather(runtime.host), check=request.check)


def compare_data(
    window: Window | None,
    held_out: Window | None,
    config: Config,
    runtime: Runtime,
    exchange: Exchange,
    *,
    check: bool,
) -> list[str]:
    """Warnings where ranks opened other games, or have other tablebases for self-play; DataError if `check`.

    Collective, raises on all ranks; also ConfigError and DataError for tables that cannot be used.
    """
    opened = {"data": window, "validation data": held_out}
    ids = {name: given.id[:12] for name, given in opened.items() if given is not None}
    if config.self_play.mode != "supervised":
        tables = exchange.on_each(lambda: tables_of(config.self_play, config.network.game))
        ids |= {"--syzygy": tables.identity} if tables else {}
    ways_on = " (--sync-data sends games)"
    facts, hosts = exchange.gather(ids), exchange.gather(runtime.host)
    return check_agreement(facts, hosts, check=check, kind=DataError, ways_on=ways_on)


def facts_of(config: Config, start: Mapping[str, object], versions: Mapping[str, str]) -> dict[str, Any]:
    """The facts of this rank, flat: a setting by its flag's name, the rest by other names.

    start: what was asked of this start alone (resume, fresh_start). versions: of packages, and `commit`.
    """
    facts: dict[str, Any] = {}
    for section, values in to_table(config).items():
        facts |= {
            name: value
            for name, value in values.items()
            if scope_of(SECTIONS[section], name) is not Scope.NODE
        }
    settings = config.deepspeed
    of_file: dict[str, object] = {value.name: value.value for value in settings.values}
    of_file |= {"precisions_off": sorted(settings.precisions_off), "passed_on": dict(settings.passed_on)}
    of_file["zero_options"] = dict(settings.zero_options)
    facts |= {f"ds_config.json {name}": value for name, value in of_file.items()}
    return json_ready({**facts, **start, **versions})  # type: ignore[no-any-return]


def differences(facts: Sequence[Facts], hosts: Sequence[str]) -> list[tuple[str, str]]:
    """(key, line) of each fact that differs between ranks; the line names the values and who has them.

    facts, hosts: of every rank, by rank.
    """
    keys = dict.fromkeys(key for of_rank in facts for key in of_rank)
    lines = []
    for key in keys:
        ranks_by_value: dict[str, list[int]] = {}
        for rank, of_rank in enumerate(facts):
            ranks_by_value.setdefault(_shown(of_rank.get(key)), []).append(rank)
        if len(ranks_by_value) > 1:
            values = [f"{value} on {_who(ranks, hosts)}" for value, ranks in ranks_by_value.items()]
            lines.append((key, f"{key}: {', '.join(values)}"))
    return lines


def check_agreement(
    facts: Sequence[Facts],
    hosts: Sequence[str],
    *,
    check: bool,
    kind: type[AlphaZeroError] = ConfigError,
    ways_on: str = "",
) -> list[str]:
    """The warnings. Raises an error of this kind where ranks differ in more than what is only warned about.

    check: False turns that error into warnings (--no-preflight).
    """
    lines = differences(facts, hosts)
    grave = [line for key, line in lines if key not in ONLY_WARNED_OF]
    if grave and check:
        more = len(grave) - MOST_NAMED
        rest = f"; and {counted(more, 'other setting')}" if more > 0 else ""
        raise kind(
            f"nodes differ: {'; '.join(grave[:MOST_NAMED])}{rest}; expected the same on every node{ways_on}",
            found_by_all_ranks=True,
        )
    return [f"warning: nodes differ: {line}" for _, line in lines]


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value or "''"
    return "none" if value is None or value == [] else str(value)


def _who(ranks: Iterable[int], hosts: Sequence[str]) -> str:
    """The hosts of these ranks, each with its ranks: 'gpu1 (ranks 0, 1)'."""
    by_host: dict[str, list[int]] = {}
    for rank in ranks:
        by_host.setdefault(hosts[rank], []).append(rank)
    return " and ".join(
        f"{host} (rank{'s' if len(own) > 1 else ''} {', '.join(map(str, own))})"
        for host, own in by_host.items()
    )


_POLL_S = 0.5


class DataCheck:
    """One rank a host reads; all ranks of the job receive what it finds."""

    def __init__(
        self,
        windows: Sequence[Window | None],
        run: RunDirectory,
        exchange: Exchange,
        *,
        reads: bool,
    ) -> None:
        """Begin with the shards of these windows and of the games that the run has played before.

        Collective. reads: this rank reads, for its host. Raises DataError on all ranks for what is found in
        the first seconds.
        """
        self._exchange = exchange
        self._is_done = False
        self._verification = exchange.on_each(
            lambda: Verification(_shards_of(windows, run)) if reads else None
        )

    def finish(self, beat: Callable[[], None]) -> None:
        """Return when all hosts have found their data in order; call it before anything is published.

        Collective; later calls return at once. beat: called while it waits. Raises DataError on all ranks.
        """
        own = self._verification
        while not self._is_done:
            is_own_done = own is None or own.is_done
            self._exchange.on_each(own.wait if own is not None and is_own_done else lambda: None)
            self._is_done = all(self._exchange.numbers(int(is_own_done)))
            if not self._is_done:
                beat()
                time.sleep(_POLL_S)

    def close(self) -> None:
        """End this rank's reading."""
        if self._verification is not None:
            self._verification.close()


def _shards_of(windows: Sequence[Window | None], run: RunDirectory) -> list[tuple[ShardView, str]]:
    """The shards behind the windows, and those that a self-play run that is continued has written."""
    pairs = [
        (view, sha256)
        for window in windows
        if window is not None
        for view, sha256 in zip(window.shards, window.content_ids, strict=True)
    ]
    if (run.games / MANIFEST_NAME).is_file():
        pairs += GameStore.open(run.games).listed_shards()
    return list({view.path: (view, sha256) for view, sha256 in pairs}.values())
