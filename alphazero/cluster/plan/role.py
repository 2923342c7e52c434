"""The part of a job that this process plays: all of it, one node, or the head that starts the nodes."""

from __future__ import annotations

from alphazero.cluster.plan.claims import Claim, Sources, agreed
from alphazero.cluster.plan.identity import is_loopback_name, is_slurm_node, is_this_machine
from alphazero.cluster.plan.launch_plan import HEAD, LOCAL, NODE, SLURM, SLURM_TASK
from alphazero.errors import LaunchError

AUTO_RANK = "auto"


def choose_role(sources: Sources, nodes: Claim[int]) -> tuple[str, int | None]:
    """What this process does, and which node of the job this machine is (None: no part of it)."""
    request, slurm = sources.request, sources.slurm
    if request.launcher == "slurm" and slurm is None:
        raise LaunchError(
            "--launcher slurm: expected a SLURM allocation (sbatch, salloc), there is none here"
        )
    if request.launcher == "slurm" and sources.chosen:
        raise LaunchError(f"--launcher slurm contradicts {sources.origin}: expected one of the two")
    claims: list[Claim[int]] = []
    if request.node_rank == AUTO_RANK:
        claims.append(Claim(_own_line(sources), "--node-rank auto"))
    elif isinstance(request.node_rank, int):
        claims.append(Claim(request.node_rank, f"--node-rank {request.node_rank}"))
    if slurm is not None and slurm.node_rank is not None:
        claims.append(Claim(slurm.node_rank, f"SLURM_NODEID={slurm.node_rank}"))
    if sources.outer.node_rank is not None:
        outer = sources.outer
        claims.append(Claim(sources.outer.node_rank, f"{outer.rank_variable}={outer.node_rank}"))
    rank = agreed(claims)
    if rank is not None and not 0 <= rank.value < nodes.value:
        raise LaunchError(f"{rank.text}: expected 0 to {nodes.value - 1} ({nodes.text or '--nodes 1'})")
    if rank is not None and nodes.value > 1:
        by_slurm = slurm is not None and slurm.in_step and not sources.chosen and len(claims) == 1
        return (SLURM_TASK if by_slurm else NODE), rank.value
    if sources.chosen:
        return _role_of_hostfile(sources)
    if slurm is not None and not slurm.in_step:
        is_member = any(is_slurm_node(host, slurm, sources.machine) for host in slurm.hosts)
        if nodes.value > 1 or not is_member:
            return SLURM, next(
                (r for r, host in enumerate(slurm.hosts) if is_slurm_node(host, slurm, sources.machine)), None
            )
        return LOCAL, 0
    if nodes.value > 1:
        raise LaunchError(f"{nodes.text}: expected --node-rank beside it, 0 to {nodes.value - 1}")
    return LOCAL, 0


def _role_of_hostfile(sources: Sources) -> tuple[str, int | None]:
    """The head of a job over the hosts of a list; the job itself where they are this machine alone."""
    own = [
        rank
        for rank, chosen in enumerate(sources.chosen)
        if is_this_machine(chosen.host.address, sources.machine)
    ]
    if len(sources.chosen) == 1:
        return (LOCAL, 0) if own else (HEAD, None)
    for chosen in sources.chosen:
        if is_loopback_name(chosen.host.address):
            raise LaunchError(
                f"{sources.origin}, line {chosen.host.line}: {chosen.host.address} is another machine on "
                "every host; expected the name or address that the other hosts reach it by"
            )
    if len(own) > 1:
        names = " and ".join(sources.chosen[rank].host.address for rank in own)
        raise LaunchError(f"{sources.origin}: {names} are both this machine; expected each machine once")
    return HEAD, own[0] if own else None


def _own_line(sources: Sources) -> int:
    """Which host of the list this machine is."""
    if not sources.chosen:
        raise LaunchError("--node-rank auto: expected --hostfile beside it, which names this machine")
    machine = sources.machine
    own = [
        rank for rank, chosen in enumerate(sources.chosen) if is_this_machine(chosen.host.address, machine)
    ]
    if len(own) != 1:
        addresses = ", ".join(address for _, address in machine.addresses if not is_loopback_name(address))
        found = "does not name" if not own else f"names {len(own)} times"
        raise LaunchError(
            f"--node-rank auto: {sources.origin} {found} this machine ({machine.host_name}, {addresses}); "
            "expected it once, or --node-rank R"
        )
    return own[0]
