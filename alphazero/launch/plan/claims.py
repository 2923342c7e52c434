"""What flags, files and environments claim about a launch, and whether the claims agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from alphazero.base.errors import LaunchError
from alphazero.base.section import flag_of
from alphazero.launch.plan.hostfile import ChosenHost, Host, choose_hosts, parse_hostfile, read_hostfile
from alphazero.launch.plan.outer import OuterLauncher, SettingClaim, SlurmJob, read_outer, read_slurm
from alphazero.machine.machine import Machine
from alphazero.run.rank_watch import Limits
from alphazero.settings.cluster import ClusterConfig, ClusterFile

T = TypeVar("T")


@dataclass(frozen=True)
class LaunchRequest(ClusterConfig):
    """The flags of the command line, None where a flag was not given.

    node_rank: "auto" for this machine's line of the hostfile.
    """

    device: str = "auto"
    node_rank: int | str | None = None


@dataclass(frozen=True)
class Sources:
    """Everything that a launch is decided from.

    chosen: hosts of a hostfile or [cluster] after the filter, () where there is none; origin: what errors
    call that list. slurm is None where there is no SLURM.
    """

    request: LaunchRequest
    file: ClusterFile
    chosen: tuple[ChosenHost, ...]
    origin: str
    slurm: SlurmJob | None
    outer: OuterLauncher
    machine: Machine

    def claims(self, key: str, kind: type[T]) -> list[SettingClaim[T]]:
        """What the flag and [cluster] give for a setting, in this order."""
        found: list[SettingClaim[T]] = []
        value = getattr(self.request, key)
        if value is not None:
            assert isinstance(value, kind)
            found.append(SettingClaim(value, f"{flag_of(key)} {value}"))
        if key in self.file.places:
            found.append(SettingClaim(getattr(self.file.config, key), self.file.shown(key)))
        return found

    def choice(self, key: str, kind: type[T], default: T) -> T:
        """Of a setting that sources may give differently, the first."""
        return next((claim.value for claim in self.claims(key, kind)), default)


def read_sources(
    request: LaunchRequest, machine: Machine, environment: Mapping[str, str], file: ClusterFile
) -> Sources:
    """Flags, [cluster], hostfile, SLURM and other launchers, read and checked by themselves.

    Raises LaunchError for values that no source may have. Whether the sources agree is found where each
    setting is decided.
    """
    outer = read_outer(environment)
    # mpirun runs inside an allocation and numbers its own processes, whatever started its daemons.
    slurm = None if outer.mpi_variable and "SLURM_STEP_ID" not in environment else read_slurm(environment)
    if outer.mpi_variable not in ("", "PMI_SIZE"):
        slurm = None
    if slurm is not None and slurm.in_step:
        outer = OuterLauncher(master_addr=outer.master_addr)
    hosts, origin = _read_hosts(request, file)
    include, exclude = request.include, request.exclude
    if include is None and exclude is None:
        include, exclude = file.config.include, file.config.exclude
    if not hosts and (include is not None or exclude is not None):
        flag = f"--include {include}" if include is not None else f"--exclude {exclude}"
        raise LaunchError(f"{flag}: expected --hostfile beside it")
    chosen = choose_hosts(hosts, include, exclude, origin) if hosts else ()
    if include is None and exclude is None:
        chosen = chosen[: request.nodes]  # the first ones, as DeepSpeed's launcher takes them
    return Sources(request, file, chosen, origin, slurm, outer, machine)


def _read_hosts(request: LaunchRequest, file: ClusterFile) -> tuple[tuple[Host, ...], str]:
    """The hosts of --hostfile or [cluster], and what messages call that list."""
    keys = [key for key in ("hosts", "hostfile") if key in file.places]
    if len(keys) > 1:
        raise LaunchError(
            f"{file.shown('hosts')} contradicts {file.shown('hostfile')}: expected one of the two"
        )
    if request.hostfile is not None:
        hosts = read_hostfile(Path(request.hostfile))
        origin = f"--hostfile {request.hostfile}"
        for key in keys:
            if [host.text for host in _hosts_of(file, key)] != [host.text for host in hosts]:
                raise LaunchError(f"{origin} contradicts {file.shown(key)}: expected one of the two")
        return hosts, origin
    if not keys:
        return (), ""
    origin = f"[cluster] hosts ({file.places['hosts']})" if keys == ["hosts"] else file.shown("hostfile")
    return _hosts_of(file, keys[0]), origin


def _hosts_of(file: ClusterFile, key: str) -> tuple[Host, ...]:
    """The hosts that [cluster] lists in `hosts` or in the file named by `hostfile`."""
    if key == "hostfile":
        return read_hostfile(Path(file.config.hostfile or ""))
    place = f"{file.places['hosts']}: [cluster] hosts"
    for entry in file.config.hosts:
        if "\n" in entry:
            raise LaunchError(
                f"{place}: {entry!r}: expected one host per entry, '<host> slots=<positive int>'"
            )
    return parse_hostfile("\n".join(file.config.hosts), place)


def agreed(claims: Sequence[SettingClaim[T]]) -> SettingClaim[T] | None:
    """The first claim, None where there is none; LaunchError where another one differs from it."""
    for other in claims[1:]:
        if other.value != claims[0].value:
            raise LaunchError(f"{claims[0].text} contradicts {other.text}: expected one of them, or the same")
    return claims[0] if claims else None


def choose_limits(sources: Sources) -> Limits:
    """The limits of a launch: no phase is held to less than a step."""
    usual = Limits()
    step_s = sources.choice("hang_timeout", float, usual.step_s)
    return replace(
        usual,
        step_s=step_s,
        start_s=sources.choice("start_timeout", float, usual.start_s),
        silence_s=sources.choice("silence_timeout", float, usual.silence_s),
        pause_s=max(usual.pause_s, step_s),
        games_s=max(usual.games_s, step_s),
        shutdown_s=max(usual.shutdown_s, step_s),
    )
