"""The plan of a launch, made from flags, files, environment and machine.

Flags come before [cluster] in the TOML, before the hostfile, before SLURM's environment, before that of
torchrun or MPI, before what this machine is. Facts of the
job (nodes, processes per node, node rank, master address) must agree wherever they are given; of choices
(port, interface, launcher, restarts) the first counts.
docs/cluster.md shows the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from alphazero.base.errors import LaunchError
from alphazero.base.text import counted
from alphazero.launch.plan.launch_plan import (
    HEAD,
    NODE,
    SLURM,
    HostPlan,
    LaunchPlan,
    Remote,
)
from alphazero.launch.plan.node import ChooseCpuRanks, resolve_devices
from alphazero.launch.plan.outer import SettingClaim
from alphazero.launch.plan.sources import (
    LaunchRequest,
    Sources,
    agreed,
    choose_role,
    read_sources,
    refuse_loopback,
)
from alphazero.machine.machine import DEFAULT_PORT, LOOPBACK, Machine, names_loopback, outward_address
from alphazero.run.rank_watch import Limits
from alphazero.settings.cluster import ClusterFile

ALL_GPUS = -1


def resolve(
    request: LaunchRequest,
    machine: Machine,
    environment: Mapping[str, str],
    file: ClusterFile,
    addresses_of: Callable[[str], tuple[str, ...]] = lambda name: (),
    cpu_ranks: ChooseCpuRanks | None = None,
    ssh_config: str = "",
) -> LaunchPlan:
    """What to start, and from where.

    file: the [cluster] section of --config. addresses_of: IP addresses behind a name, () where it does not
    resolve or no name server may be asked. cpu_ranks: the number for one machine without GPUs, where none is
    given. Raises LaunchError for what cannot be, and for sources that contradict each other, naming both.
    """
    sources = read_sources(request, machine, environment, file)
    nodes = _count_nodes(sources)
    role, node_rank = choose_role(sources, nodes)
    of_each = sources.choice("actors", int, 0)  # but for hosts whose line has another number
    actors = [host.actors or of_each for host in sources.chosen] or [of_each] * nodes.value
    if any(actors) and role == NODE:
        raise LaunchError(
            f"{nodes.text}: machines that are started one by one have no actors; expected one --hostfile for "
            "all, or `alphazero selfplay --for` beside them"
        )
    counts = _count_processes(sources, actors)
    hosts = _plan_hosts(sources, counts, actors, role, node_rank, ssh_config)
    if not (num_nodes := sum(not host.only_plays for host in hosts)):
        raise LaunchError(f"{sources.origin}: all hosts only play; expected one whose slots do not all play")
    master_addr = _choose_master(sources, num_nodes, hosts)
    interface = sources.choice("interface", str, "")
    notices: tuple[str, ...] = ()
    is_listed = sources.chosen or sources.slurm is not None or sources.outer.nodes is not None
    by_person = role == NODE and not is_listed
    if not master_addr:
        if role != NODE or node_rank != 0:
            raise LaunchError(f"{nodes.text}: expected --master-addr beside it, the address of node 0")
        master_addr = _own_address(nodes, interface, machine)
        notices = (f"node 0 is at {master_addr}: start the other nodes with --master-addr {master_addr}",)
    elif num_nodes > 1 and by_person and names_loopback(master_addr):  # which means just that
        notices = (f"master {master_addr} is the loopback: all {nodes.value} nodes are on this machine",)
    elif num_nodes > 1:
        is_here = role == NODE or node_rank == 0
        refuse_loopback(master_addr, machine, addresses_of if is_here else lambda name: ())
    port = _choose_port(sources, nodes)
    plan = LaunchPlan(
        hosts=hosts,
        device=request.device,
        master_addr=master_addr,
        master_port=port.value,
        # What starts the ranks of a node; srun only carries it there.
        launcher="deepspeed" if sources.choice("launcher", str, "auto") == "deepspeed" else "torchrun",
        role=role,
        node_rank=node_rank,
        # Machines that are started one by one cannot agree on another one.
        port_is_chosen=bool(port.text) or (len(hosts) > 1 and role == NODE),
        notices=notices,
        interface=interface,
        max_restarts=_choose_restarts(sources, role),
        min_nodes=_choose_min_nodes(sources, role, num_nodes),
        limits=_choose_limits(sources),
    )
    if plan.is_head:
        return plan
    assert node_rank is not None
    count = counts[node_rank]
    # Machines that were started one by one do not know each other's cores: there a number must be given.
    choose = _leaving(cpu_ranks, actors[0]) if cpu_ranks is not None and plan.num_nodes == 1 else None
    source = count.text if count else ""
    device, own, notices = resolve_devices(plan.device, plan.own, source, machine, environment, choose)
    own = replace(own, remote=Remote(machine.host_name), address=own.address or plan.master_addr)
    # Other nodes that count their devices themselves are taken to have as many as this one.
    hosts = tuple(replace(host, num_ranks=host.num_ranks or own.num_ranks) for host in plan.hosts)
    return replace(plan, hosts=hosts, device=device, notices=plan.notices + notices).with_started([own])


def _leaving(cpu_ranks: ChooseCpuRanks, actors: int) -> ChooseCpuRanks:
    """The choice of CPU ranks that leaves a core for each actor."""
    return lambda num_cores: cpu_ranks(max(1, num_cores - actors))


def _count_nodes(sources: Sources) -> SettingClaim[int]:
    claims = sources.claims("nodes", int)
    if sources.chosen:
        count = len(sources.chosen)
        claims.append(SettingClaim(count, f"{sources.origin} ({counted(count, 'host')})"))
    if sources.slurm is not None:
        count = len(sources.slurm.hosts)
        claims.append(SettingClaim(count, f"SLURM_NNODES={count} ({sources.slurm.source})"))
    if sources.outer.nodes is not None:
        claims.append(sources.outer.nodes)
    return agreed(claims) or SettingClaim(1, "")


def _plan_hosts(
    sources: Sources,
    counts: Sequence[SettingClaim[int] | None],
    actors: Sequence[int],
    role: str,
    node_rank: int | None,
    ssh_config: str,
) -> tuple[HostPlan, ...]:
    """All hosts, in order of node rank."""
    lines = sources.chosen
    if lines:
        names = [(line.address, line.name) for line in lines]
    elif sources.slurm is not None:
        names = [(name, name) for name in sources.slurm.hosts]
    else:
        names = [("", "")] * len(counts)
    plans = []
    for rank, (address, target) in enumerate(names):
        here = rank == node_rank and role != SLURM
        remote = Remote(address, "" if here else target, role == SLURM, ssh_config)
        count = counts[rank]
        plan = HostPlan(remote, address, count.value if count else None, num_actors=actors[rank])
        if sources.chosen:
            plan = replace(plan, weight=lines[rank].weight, slots=lines[rank].chosen)
        plans.append(plan)
    return tuple(plans)


def _count_processes(sources: Sources, actors: Sequence[int]) -> list[SettingClaim[int] | None]:
    """Ranks of every node, None where it counts its devices. Slots and tasks are for ranks and actors."""
    requested = agreed(sources.claims("gpus", int))
    wants_all = requested is not None and requested.value == ALL_GPUS
    if requested is not None and not wants_all and requested.value < 1:
        raise LaunchError(f"{requested.text}: expected a number of processes from 1, or -1 for all devices")
    slurm = sources.slurm
    counts: list[SettingClaim[int] | None] = []
    for rank, players in enumerate(actors):
        claims = [] if requested is None or wants_all else [requested]
        less = f" less {counted(players, 'actor')}" if players else ""
        left: SettingClaim[int] | None = None
        if sources.chosen:
            chosen = sources.chosen[rank]
            slots = len(chosen.chosen) or chosen.slots
            where = f"{sources.origin}, line {chosen.line}: slots={slots}{less}"
            left = SettingClaim(slots - players, where)
            if requested is not None and wants_all and chosen.chosen:
                raise LaunchError(
                    f"{requested.text} contradicts --include or --exclude: expected one of them"
                )
        elif slurm is not None and not slurm.in_step and slurm.tasks_per_node[rank : rank + 1] > (1,):
            tasks = slurm.tasks_per_node[rank]
            left = SettingClaim(tasks - players, f"{tasks} tasks per node from SLURM{less}")
        if left and left.value == 0 and sources.chosen and sources.chosen[rank].actors:
            claims = [left]  # it only plays
        elif left and left.value < 1:
            raise LaunchError(f"{left.text}: no rank is left; expected fewer actors")
        elif left and not (wants_all and sources.chosen):
            claims.append(left)
        counts.append(agreed(claims))
    return counts


def _choose_master(sources: Sources, num_nodes: int, hosts: tuple[HostPlan, ...]) -> str:
    """The master's address, by default of the first host that a list names; "" without a list."""
    claims = sources.claims("master_addr", str)
    if sources.outer.master_addr is not None and num_nodes > 1:
        claims.append(sources.outer.master_addr)
    claim = agreed(claims)
    if claim is not None and not claim.value:
        raise LaunchError("--master-addr '': expected the address of node 0")
    if num_nodes == 1:  # no other machine is to reach it
        return claim.value if claim is not None and names_loopback(claim.value) else LOOPBACK
    return claim.value if claim is not None else hosts[0].address


def _own_address(nodes: SettingClaim[int], interface: str, machine: Machine) -> str:
    """The address of this machine, node 0, which the others need."""
    if address := outward_address(machine.addresses, interface):
        return address
    where = f"--interface {interface} has" if interface else "this machine has"
    raise LaunchError(
        f"{nodes.text}: {where} no address in a network; expected --master-addr ADDRESS, or --master-addr "
        "127.0.0.1 where all nodes are on this machine"
    )


def _choose_port(sources: Sources, nodes: SettingClaim[int]) -> SettingClaim[int]:
    """The port; its text is "" where none was requested."""
    if claims := sources.claims("master_port", int):
        return claims[0]
    if sources.outer.master_port is not None and nodes.value > 1:
        return sources.outer.master_port
    if sources.slurm is not None:
        return SettingClaim(sources.slurm.port, "")
    return SettingClaim(DEFAULT_PORT, "")


def _choose_restarts(sources: Sources, role: str) -> int:
    number = sources.choice("max_restarts", int, 0)
    by_hand = role == NODE
    if number and by_hand and sources.request.max_restarts is not None:
        raise LaunchError(
            f"--max-restarts {number}: all machines start again together; expected --hostfile or a SLURM "
            "allocation"
        )
    return 0 if by_hand else number


def _choose_min_nodes(sources: Sources, role: str, num_nodes: int) -> int:
    """0 for all, and where each machine has a separate launcher."""
    claims = sources.claims("min_nodes", int)
    if claims and claims[0].value > num_nodes:
        raise LaunchError(f"{claims[0].text}: expected at most {num_nodes}, as many as hosts")
    return claims[0].value if claims and role in (HEAD, SLURM) else 0


def _choose_limits(sources: Sources) -> Limits:
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
