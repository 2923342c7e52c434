"""The real head (host comparison, agents, supervisor) over the fake launcher and ranks: what the tests start.

`fake_head.py JSON`: fields of Supervision and LaunchPlan that differ from the defaults, `hosts` as
[name, target, ranks] or [name, target, ranks, actors].
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from alphazero.launch.head import supervisor
from alphazero.launch.head.lines import say
from alphazero.launch.head.supervisor import ChosenRun, Supervision, Supervisor
from alphazero.launch.plan.launch_plan import HEAD, Command, HostPlan, LaunchPlan, Remote, Variable
from alphazero.run.rank_watch import Limits

HERE = Path(__file__).resolve().parent


def fake_command(plan: LaunchPlan, node_rank: int, environment, python, program) -> Command:
    """In place of commands.build_command: the fake launcher, with what torchrun gets."""
    values = {
        "NUM_RANKS": plan.ranks[node_rank],
        "FIRST_RANK": sum(plan.ranks[:node_rank]),
        "WORLD_SIZE": sum(plan.ranks),
        "MASTER_ADDR": plan.master_addr,
        "MASTER_PORT": plan.master_port,
    }
    variables = tuple(Variable(name, str(value), "test") for name, value in values.items())
    return Command((python, str(HERE / "fake_launcher.py"), *program), variables)


def fake_actors(host: HostPlan, environment, python, program) -> tuple[Command, ...]:
    """In place of commands.actor_commands."""
    return (Command((python, str(HERE / "fake_actor.py"), *program)),) * len(host.players)


def host_plan(name: str, target: str, ranks: int, actors: int = 0) -> HostPlan:
    """A host of the job."""
    return HostPlan(Remote(name, target), name, ranks, num_actors=actors)


def main() -> int:
    """Run one job."""
    fields = json.loads(sys.argv[1])
    hosts = tuple(host_plan(*host) for host in fields.pop("hosts"))
    arguments = tuple(fields.pop("arguments"))
    plan = LaunchPlan(
        hosts,
        "auto",
        hosts[0].address,
        23456,
        role=HEAD,
        limits=Limits(**fields.pop("limits", {})),
        directory=str(Path.cwd()),
    )
    of_plan = {name: value for name, value in fields.items() if name in LaunchPlan.__dataclass_fields__}
    job = Supervision(
        plan=replace(plan, **of_plan),
        trainer=(str(HERE / "fake_rank.py"),),
        choose_run=lambda device: ChosenRun(arguments[0], arguments),
        runs_directory=str(Path(arguments[0]).parent),
        **{name: value for name, value in fields.items() if name not in of_plan},
    )
    supervisor.build_command, supervisor.actor_commands = fake_command, fake_actors
    Supervisor._needs_preflight = lambda self, ready: False  # the fake launcher runs one program
    return Supervisor(job, say).run()


if __name__ == "__main__":
    sys.exit(main())
