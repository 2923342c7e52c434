"""The store that rank 0 serves where no launcher does: on the loopback alone for one machine."""

import json
import os
import socket
import subprocess
import sys

from alphazero.launch.node.store import served_store
from tests.support.jobs.jobs import environment

ALONE = """
import json, os, psutil
from alphazero.training.engine.engine import end_process_group, start_process_group
from alphazero.launch.node.store import lone_process_environment
from alphazero.training.ranks.runtime import read_runtime
os.environ.update(lone_process_environment())
start_process_group(read_runtime(os.environ, "cpu"))
here = psutil.Process()
found = [one.laddr.ip for process in (here, *here.children(recursive=True))
         for one in process.net_connections("inet") if one.status == "LISTEN"]
print(json.dumps(found))
end_process_group()
"""


def test_a_process_that_no_launcher_started_listens_on_the_loopback_alone():
    done = subprocess.run(
        [sys.executable, "-c", ALONE], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found != []
    assert set(found) == {"127.0.0.1"}


def test_a_lone_process_takes_another_port_where_its_own_is_taken():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = str(server.getsockname()[1])
        told = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        with served_store(told):
            assert told["MASTER_PORT"] != port


def test_ranks_under_a_launcher_that_serves_the_store_serve_none():
    told = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    with served_store({**told, "TORCHELASTIC_USE_AGENT_STORE": "True"}):
        assert os.getpid() > 0
    with served_store({**told, "RANK": "1"}):
        assert told["MASTER_PORT"] == "1"
