"""A watched report: the page is written anew when the run goes on, until Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time

from tests.support.jobs.jobs import environment
from tests.support.report.made_up_runs import step_line, supervised_run


def test_new_figures_come_into_the_page_until_ctrl_c(tmp_path) -> None:
    run = supervised_run(tmp_path / "one")
    command = [sys.executable, "-m", "alphazero", "report", str(run.path), "--watch"]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    page = run.path / "report.html"
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(str(page))
        assert 'data-watch="5"' in page.read_text() and "0.123" not in page.read_text()
        with run.metrics.open("a") as file:
            file.write(json.dumps(step_line(41, policy_loss=0.123)) + "\n")
        deadline = time.monotonic() + 60
        while "0.123" not in page.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, errors.strip()) == (0, "")
    assert 'data-watch="0"' in page.read_text()
