"""What the head makes of the end of a preflight: go on, stop, and which host is to blame."""

import pytest

from alphazero.base.records import to_json
from alphazero.launch.agent.protocol import Output
from alphazero.launch.blame import Failure
from alphazero.launch.head.attempt import StartOutcome
from alphazero.launch.head.preflight_verdict import find_report, judge, program
from alphazero.launch.plan.launch_plan import HostPlan, LaunchPlan, Remote
from alphazero.launch.preflight_report import PreflightFault, PreflightReport

HOSTS = (HostPlan(Remote("gpu-1"), "gpu-1", 2), HostPlan(Remote("gpu-2"), "gpu-2", 1))
PLAN = LaunchPlan(HOSTS, "cuda", "gpu-1", 12355)


def outcome(failure: Failure | None = None, *lost: str) -> StartOutcome:
    return StartOutcome(failure, set(lost))


def report(*faults: PreflightFault) -> PreflightReport:
    return PreflightReport("nccl", 3, 2, 64 << 20, 42.1, faults)


def failure(
    host: str, status: int, fate: str, cause: str = "", kind: str = "", ranks: tuple[int, ...] = ()
) -> Failure:
    return Failure(host, 0, fate, cause, "/log", status, kind, ranks)


def test_a_healthy_job_is_one_line():
    verdict = judge(report(), outcome(), PLAN)
    assert verdict.lines == ("preflight: 3 ranks on 2 hosts, nccl: all-reduce of 64 MiB at 42.10 GB/s",)
    assert (verdict.status, verdict.culprits) == (0, frozenset())


def test_a_warning_is_shown_and_the_job_goes_on_whatever_rank_0_ended_with():
    ended = outcome(failure("gpu-1", 1, "ended with exit status 1"))
    verdict = judge(report(PreflightFault("slow", is_failure=False)), ended, PLAN)
    assert (verdict.status, verdict.culprits) == (0, frozenset())
    assert verdict.lines[1:] == ("warning: preflight: slow",)


@pytest.mark.parametrize(("rank", "host"), [(0, "gpu-1"), (1, "gpu-1"), (2, "gpu-2")])
def test_a_failure_stops_with_the_host_as_the_hostfile_calls_it(rank: int, host: str):
    verdict = judge(report(PreflightFault("torch", rank)), outcome(), PLAN)
    assert (verdict.status, verdict.culprits) == (2, {host})
    assert verdict.lines == ("error: preflight: torch",)


def test_a_rank_that_never_came_is_blamed_and_not_the_one_that_says_so():
    cause = "rank 2 (gpu-2) did not reach step 'start' within 120 s"
    told = failure("gpu-1", 2, "ended with exit status 2", cause, "launch", (2,))
    verdict = judge(None, outcome(told), PLAN)
    assert (verdict.status, verdict.culprits) == (2, {"gpu-2"})
    assert verdict.lines == ("error: preflight: rank 2 (gpu-2) did not reach step 'start' within 120 s",)


def test_a_closed_network_is_no_hosts_fault():
    cause = "all ranks came to step 'process group' and none came through"
    told = failure("gpu-1", 2, "ended with exit status 2", cause, "launch")
    verdict = judge(None, outcome(told), PLAN)
    assert (verdict.status, verdict.culprits) == (2, frozenset())


@pytest.mark.parametrize("cause", ["", "rank 2 (gpu-2) did not reach step 'start'", "Connection lost"])
@pytest.mark.parametrize(
    ("kind", "ranks", "culprits"),
    [
        ("launch", (0, 2), {"gpu-1", "gpu-2"}),
        ("launch", (7,), set()),  # no such rank
        ("lost connection", (), set()),
        ("crash", (), {"gpu-1"}),
        ("", (), {"gpu-1"}),
    ],
)
def test_culprits_are_read_from_kind_and_ranks_whatever_is_said(cause, kind, ranks, culprits):
    told = failure("gpu-1", 1, "ended with exit status 1", cause, kind, ranks)
    assert judge(None, outcome(told), PLAN).culprits == culprits


def test_a_killed_rank_and_a_lost_host_are_blamed():
    killed = judge(None, outcome(failure("gpu-2", 137, "was killed by SIGKILL", kind="signal")), PLAN)
    assert (killed.status, killed.culprits) == (137, {"gpu-2"})
    lost = outcome(failure("gpu-2", 1, "is lost"), "gpu-2")
    # Even with a report: who is gone cannot train.
    assert judge(report(), lost, PLAN).culprits == {"gpu-2"}


def test_the_report_is_found_among_what_else_rank_0_says():
    text = to_json(report(PreflightFault("slow", 1)))
    before = ((None, "{\n"), (0, "a warning\n{\n"), (1, "{}\n"))
    told = (*before, (0, text[:40]), (0, text[40:]), (0, "\n[W] the end\n"))
    assert find_report(Output(rank, said) for rank, said in told) == report(PreflightFault("slow", 1))
    assert find_report([Output(0, "{\n"), Output(0, '"format": "other"\n}\n')]) is None


def test_the_program_is_told_hosts_slots_and_files():
    assert program(PLAN, ["own.toml"])[3:] == (
        *("--device", "cuda", "--json", "--config-file", "own.toml"),
        *("--hosts", "gpu-1", "gpu-1", "gpu-2"),
    )
    assert "--config-file" not in program(PLAN, [])
