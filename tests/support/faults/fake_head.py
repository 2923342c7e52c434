"""The real head (host comparison, agents, supervisor) over the fake launcher and ranks: what the tests start.

`fake_head.py JSON`: fields of Supervision that differ from the defaults, `hosts` as [name, target, slots].
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from alphazero.cluster.launch import supervisor
from alphazero.cluster.launch.compare import JobHost
from alphazero.cluster.launch.dry_run import say
from alphazero.cluster.launch.remote import Remote
from alphazero.cluster.launch.supervisor import ChosenRun, Supervision, Supervisor
from alphazero.cluster.plan.commands import Command, Variable
from alphazero.cluster.plan.launch_plan import Limits

HERE = Path(__file__).resolve().parent


def fake_command(plan, machine, interface, environment, python, trainer, arguments, *rest) -> Command:
    """In place of commands.build_command: the fake launcher, told what torchrun is told."""
    values = {
        "NUM_RANKS": plan.num_processes,
        "FIRST_RANK": plan.node_rank * plan.num_processes,
        "WORLD_SIZE": plan.num_nodes * plan.num_processes,
        "MASTER_ADDR": plan.master_addr,
        "MASTER_PORT": plan.master_port,
    }
    variables = tuple(Variable(name, str(value), "test") for name, value in values.items())
    return Command((python, str(HERE / "fake_launcher.py"), *trainer, *arguments), variables)


def main() -> int:
    """Run one job."""
    fields = json.loads(sys.argv[1])
    hosts = tuple(JobHost(Remote(name, target), name, slots) for name, target, slots in fields.pop("hosts"))
    limits = Limits(**fields.pop("limits", {}))
    arguments = tuple(fields.pop("arguments"))
    job = Supervision(
        hosts=hosts,
        trainer=(str(HERE / "fake_rank.py"),),
        choose_run=lambda device: ChosenRun(arguments[0], arguments),
        directory=str(Path.cwd()),
        runs_directory=str(Path(arguments[0]).parent),
        master_addr="",
        master_port=23456,
        limits=limits,
    )
    supervisor.build_command = fake_command
    return Supervisor(replace(job, **fields), sys.executable, os.environ, say).run()


if __name__ == "__main__":
    sys.exit(main())
