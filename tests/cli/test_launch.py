"""`alphazero launch` as a user types it."""

import base64
import json
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.base.text import counted
from alphazero.cli.main import main
from alphazero.machine.lock import only_writer
from alphazero.machine.memory import MemoryState
from alphazero.run.checkpoint_files import OPTIMIZER, STATE, WEIGHTS, write_manifest
from alphazero.run.find import find_weights
from alphazero.run.overview import list_runs
from alphazero.settings.load import load_config, to_table
from tests.support.jobs.jobs import SHARED_OUT, zero_flags
from tests.support.paths import REPOSITORY

LIMIT_S = 0.8


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch):
    """As on a machine without an NVIDIA device."""
    monkeypatch.setattr("alphazero.machine.machine.list_devices", lambda files_present: ())


def test_flags_of_the_trainer_go_through_unchanged_and_in_order(
    no_gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    for name in ("a b.pgn", "c"):
        Path(name).touch()
    trainer = [
        "--batch-size",
        "2048",
        "--mixed-precision",
        "--data",
        "a b.pgn",
        "c",
        "--run-name=x",
        "--seed",
        "3",
    ]
    assert main(["launch", *trainer[:3], "--gpus", "8", *trainer[3:], "--dry-run"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[words.index(str(REPOSITORY / "train_distributed.py")) + 1 :] == trainer
    assert "--nproc_per_node=8" in words


def test_the_device_is_told_to_the_trainer_where_it_was_asked_for(capsys: pytest.CaptureFixture[str]):
    assert main(["launch", "--device", "cpu", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("train_distributed.py --device cpu\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "x"], "--gpus: 'x': expected a whole number from -1 to 1024"),
        (["--gpu", "2"], "unknown flag --gpu; did you mean --gpus?"),
        (["--batch-sise", "2"], "unknown flag --batch-sise; did you mean --batch-size?"),
        (["--hostfile", "none"], "--hostfile none: cannot be read: No such file or directory"),
        (["--nodes", "2"], "--nodes 2: expected --node-rank beside it, 0 to 1"),
        (["--node-rank", "first"], "--node-rank: 'first': expected a whole number"),
        (["--elastic", "1:4"], "--elastic: no flag of this program; expected --hostfile FILE"),
        (["--ssh-config", "none", "--dry-run"], "--ssh-config none: no such file"),
        (["--launcher", "mpi"], "--launcher: 'mpi': expected one of auto, torchrun"),
        (["--device", "cuda"], "--device cuda: expected an NVIDIA device, there is none on"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_before_anything_starts(
    no_gpu, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["launch", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"alphazero: error: {message}")
    assert said.count("\n") == 1


def test_a_port_in_use_is_an_error_that_suggests_another(
    no_gpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert main(["launch", "--master-port", str(port)]) == 2
        assert f"port {port} is in use" in capsys.readouterr().err
        # Nothing would start, so nothing fails.
        assert main(["launch", "--master-port", str(port), "--dry-run"]) == 0
        said = capsys.readouterr()
        monkeypatch.setattr("alphazero.launch.plan.resolve.DEFAULT_PORT", port)
        assert main(["launch", "--dry-run"]) == 0
        assert "would take another" in capsys.readouterr().err
    assert "would refuse it" in said.err
    assert f"--master_port={port}" in said.out


@pytest.fixture
def four_cores(no_gpu, monkeypatch: pytest.MonkeyPatch):
    """As on a machine with four cores, no GPU and memory enough."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("alphazero.machine.machine.count_cores", lambda: 4)
    monkeypatch.setattr("alphazero.cli.training.launch.read_memory", lambda: MemoryState(1 << 40, 1 << 41))


def ranks_and_words(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, int, str]:
    """Ranks, threads of each and what is said by `launch --dry-run`."""
    assert main(["launch", *arguments, "--dry-run"]) == 0
    said = capsys.readouterr()
    words = shlex.split(said.out)
    [ranks] = [word.partition("=")[2] for word in words if word.startswith("--nproc_per_node=")]
    [threads] = [word.partition("=")[2] for word in words if word.startswith("OMP_NUM_THREADS=")]
    return int(ranks), int(threads), said.err + said.out


@pytest.mark.parametrize(
    ("flags", "ranks", "threads", "reason"),
    [
        ((), 4, 1, "as many as cores, batch"),
        (("--batch-size", "128"), 2, 2, "as many as cores, batch"),
        (("--batch-size", "32"), 1, 4, "as many as cores, batch"),
        (("--batch-size", "32", "--micro-batch-size", "8"), 4, 1, "as many as cores, batch"),
        (("--micro-batch-size", "256"), 1, 4, "as many as cores, batch"),
        (("--gpus", "3"), 3, 1, "--gpus 3"),
    ],
)
def test_a_machine_without_gpus_gets_a_rank_per_core_as_far_as_the_batch_goes(
    four_cores, monkeypatch, tmp_path, capsys, flags, ranks, threads, reason
):
    monkeypatch.chdir(tmp_path)
    found = ranks_and_words(capsys, *flags)
    assert found[:2] == (ranks, threads)
    assert f"CPU with {counted(ranks, 'rank')} ({reason}" in found[2]


@pytest.mark.parametrize(
    ("numbers", "ranks"),
    [((64, 16, 2), 2), ((256, 32, 2), 4), ((None, 16, 1), 4), ((96, None, 1), 1), ((32, 32, None), 1)],
)
def test_ranks_of_the_cpu_follow_the_batch_of_ds_config(
    four_cores, monkeypatch, tmp_path, capsys, numbers, ranks
):
    monkeypatch.chdir(tmp_path)
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    table = {name: number for name, number in zip(names, numbers, strict=True) if number}
    (tmp_path / "ds.json").write_text(json.dumps(table))
    assert ranks_and_words(capsys, "--deepspeed_config", "ds.json")[0] == ranks


def test_a_dry_run_shows_batch_precision_and_what_ds_config_decided(
    no_gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("NCCL_TIMEOUT", "1800")
    path = tmp_path / "ds.json"
    path.write_text("{train_batch_size: 64, gradient_accumulation_steps: 4, zero_optimization: {stage: 1}, }")
    arguments = ["--config", "chess_cpu", "--deepspeed_config", str(path), "--gpus", "2", "--dry-run"]
    assert main(["launch", *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("env ") and shown.out.count("\n") == 1
    lines = shown.err.replace("alphazero: ", "").splitlines()
    assert any(line.startswith("batch 64 = 8 micro-batches of 8 over 2") for line in lines)
    assert "precision fp32" in lines
    assert f"{path}: batch_size 64, gradient_accumulation_steps 4, zero_stage 1, precision fp32" in lines
    assert any(line.startswith("NCCL_TIMEOUT=1800: has no effect; --hang-timeout") for line in lines)
    path.write_text('{bf16: {enabled: "auto"}}')
    assert main(["launch", *arguments]) == 0
    assert "precision auto" in capsys.readouterr().err


def test_a_batch_of_ds_config_that_is_not_that_of_the_ranks_is_told_before_they_start(
    four_cores, monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    table = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2}
    (tmp_path / "ds.json").write_text(json.dumps(table, indent=1))
    assert main(["launch", "--num_gpus", "2", "--deepspeed", "ds.json", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "ds.json:2: train_batch_size = 64" in said and "8 x 2 x 2 = 32, or 4 ranks" in said


def test_a_run_that_goes_on_gets_the_ranks_that_its_micro_batches_keep_busy(
    four_cores, monkeypatch, tmp_path, capsys
):
    save_in_run(tmp_path, 256, 256)
    assert ranks_and_words(capsys)[:2] == (1, 4)
    assert ranks_and_words(capsys, "--fresh-start")[:2] == (4, 1)
    assert ranks_and_words(capsys, "--run-name", "other")[:2] == (4, 1)
    save_in_run(tmp_path, 257, 1)
    assert ranks_and_words(capsys, "--batch-size", "257", "--gpus", "2")[0] == 2


def save_in_run(directory: Path, batch_size: int, micro_batch_size: int, step: int = 5) -> Path:
    """The files of a checkpoint of the run that a start without a name continues; its state.json."""
    path = directory / "runs" / "chess_cpu" / "checkpoints" / f"step-{step:08d}"
    path.mkdir(parents=True, exist_ok=True)
    config = json.loads(json.dumps(to_table(load_config("chess_cpu", {}))))
    config["training"] |= {"batch_size": batch_size, "micro_batch_size": micro_batch_size}
    sizes = {"batch_size": batch_size, "micro_batch_size": micro_batch_size}
    (path / STATE).write_text(json.dumps({"step": step, "config": config, **sizes}))
    for name in (WEIGHTS, OPTIMIZER):
        (path / name).write_bytes(b"")
    write_manifest(path, [WEIGHTS, OPTIMIZER, STATE])
    return path / STATE


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--batch-size", "1021"), "runs/chess_cpu: batch size was 256 at step 5, is 1021"),
        (("--gpus", "1000"), "runs/chess_cpu, which continues: --batch-size 256"),
    ],
)
def test_what_a_run_has_is_not_blamed_on_flags(no_gpu, tmp_path, capsys, flags, expected):
    save_in_run(tmp_path, 256, 128)
    assert main(["launch", *flags, "--dry-run"]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("bit", [0, 1, 6])
def test_a_flipped_bit_in_the_newest_state_costs_a_checkpoint_and_no_more(four_cores, tmp_path, capsys, bit):
    save_in_run(tmp_path, 256, 256)
    newest = save_in_run(tmp_path, 128, 64, step=6)
    for place in (0, newest.read_text().index("128")):
        content = bytearray(newest.read_bytes())
        content[place] ^= 1 << bit
        newest.write_bytes(content)
        assert ranks_and_words(capsys)[:2] == (1, 4)
        assert find_weights("runs/chess_cpu").name == "step-00000005"
        assert [(run.state.value, run.step) for run in list_runs(Path("runs"))] == [("stopped", 5)]


def test_idle_ranks_and_tiny_micro_batches_are_told_before_anything_starts(
    four_cores, monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    said = ranks_and_words(capsys, "--gpus", "12", "--batch-size", "1024")[2]
    assert "33 %" in said and "idle" in said
    assert "--batch-size 1020 or 1032" in said
    assert main(["launch", "--gpus", "4", "--batch-size", "1021", "--dry-run"]) == 2
    assert "--batch-size 1021: " in capsys.readouterr().err


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch):
    """Name servers, other processes and other machines are out of reach."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"asked for {args}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)


def dry_run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Lines of `launch --dry-run`."""
    assert main(["launch", *arguments, "--dry-run"]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_dry_run_shows_every_command_of_every_host_and_asks_nobody(
    no_gpu, no_network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("gpu1 slots=8\nme@gpu2 slots=4\n")
    lines = dry_run(capsys, "--hostfile", str(hostfile), "--batch-size", "1536")
    assert [line for line in lines if line.startswith("# node")] == [
        "# node 0 of 2: gpu1, 8 processes",
        "# node 1 of 2: me@gpu2, 4 processes",
    ]
    ssh = [shlex.split(line) for line in lines if line.startswith("ssh ")]
    assert [words[words.index("--") + 1] for words in ssh] == ["gpu1", "me@gpu2"]
    assert [word for line in lines for word in shlex.split(line) if word.startswith("--nproc_per_node")] == [
        "--nproc_per_node=8",
        "--nproc_per_node=4",
    ]


def test_slots_of_a_hostfile_are_taken_for_gpus_until_the_hosts_have_counted(
    no_gpu, no_network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("gpu1 slots=8\ngpu2 slots=8\n")
    arguments = ["launch", "--hostfile", str(hostfile), "--dry-run"]
    assert main(arguments) == 0
    said = capsys.readouterr().err
    assert "chess_20x256, or chess_cpu" in said
    assert "4096 = 16 micro-batches of 256" in said and "idle" not in said
    assert main([*arguments, "--config", "connect4"]) == 0
    said = capsys.readouterr().err
    assert "512 = 16 micro-batches of 32" in said and "preset" not in said


def test_weights_stand_in_the_commands_of_a_dry_run(
    no_gpu, no_network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("gpu1 slots=8\ngpu2 slots=8 weight=0.5\n")
    words = [word for line in dry_run(capsys, "--hostfile", str(hostfile)) for word in line.split()]
    assert [word for word in words if word.startswith("ALPHAZERO_HOST_WEIGHT")] == [
        "ALPHAZERO_HOST_WEIGHT=1",
        "ALPHAZERO_HOST_WEIGHT=0.5",
    ]
    assert "--node-rank" not in words  # by hand the flags alone would lose the weight


def test_weights_of_hosts_are_refused_where_deepspeed_takes_gradients(no_gpu, no_network, tmp_path, capsys):
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("gpu1 slots=2\ngpu2 slots=2 weight=0.5\n")
    arguments = ("--hostfile", str(hostfile), "--config", "connect4", "--micro-batch-size", "32")
    assert main(["launch", *arguments, "--zero-stage", "3", "--dry-run"]) == 0
    assert "5, 5, 3, 3 passes by rank" in capsys.readouterr().err
    assert main(["launch", *arguments, *zero_flags(SHARED_OUT), "--dry-run"]) == 2
    assert "--host-weights: ZeRO 2 and 3 make equal passes" in capsys.readouterr().err


def test_a_dry_run_shows_who_plays_and_trains_on_what_actors_bring(
    no_gpu, no_network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("gpu3 slots=2 actors=2\ngpu1 slots=8 actors=1\ngpu2 slots=8\n")
    game = f"{REPOSITORY / 'examples/nim.py'}:Nim(piles=3)"
    arguments = ("--hostfile", str(hostfile), "--run-name", "x", "--game", game)
    lines = dry_run(capsys, *arguments)
    assert [line for line in lines if line.startswith(("# node", "# only"))] == [
        "# node 0 of 2: gpu1, 7 processes, 1 actor",
        "# node 1 of 2: gpu2, 8 processes",
        "# only plays: gpu3, 0 processes, 2 actors",
    ]
    ranks = [shlex.split(line) for line in lines if "--nproc_per_node" in line]
    assert all(words[-2:] == ["--self-play-from", "elsewhere"] and "--nnodes=2" in words for words in ranks)
    actors = [shlex.split(line) for line in lines if " selfplay " in line]
    place = ["selfplay", "--for", str(Path("runs/x"))]
    assert [words[2:] for words in actors] == [[*place, "--game", game, "--device", "cuda"]] * 3
    lines = dry_run(capsys, *arguments, "--self-play-from", "both", "--place", "s3://bucket/x")
    assert [line.split()[-2:] for line in lines if "--nproc" in line] == [["--place", "s3://bucket/x"]] * 2
    assert main(["launch", *arguments, "--self-play-from", "here", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "--self-play-from here with actors: expected elsewhere, or both" in said


def test_a_dry_run_by_hand_does_not_look_the_master_s_name_up(
    no_gpu, no_network, capsys: pytest.CaptureFixture[str]
):
    by_hand = ("--gpus", "2", "--nodes", "2", "--node-rank", "1", "--master-addr", "gpu1")
    lines = dry_run(capsys, *by_hand)
    assert "towards gpu1" in lines[0]
    assert "--master_addr=gpu1" in shlex.split(lines[1])
    assert "GLOO_SOCKET_IFNAME=lo" in shlex.split(dry_run(capsys, *by_hand, "--interface", "lo")[0])


def test_by_hand_deepspeed_is_told_of_the_processes_of_all_machines(
    no_gpu, no_network, capsys: pytest.CaptureFixture[str]
):
    by_hand = ("--gpus", "2", "--nodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.5")
    words = shlex.split(dry_run(capsys, *by_hand, "--interface", "lo", "--launcher", "deepspeed")[0])
    world = next(word.partition("=")[2] for word in words if word.startswith("--world_info"))
    assert json.loads(base64.urlsafe_b64decode(world)) == {"node0": ["0", "1"], "node1": ["0", "1"]}


def test_a_dry_run_in_an_allocation_shows_srun(
    no_gpu, no_network, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "a[1-2]"}.items():
        monkeypatch.setenv(name, value)
    lines = dry_run(capsys, "--gpus", "2")
    sruns = [shlex.split(line) for line in lines if " srun " in line]
    assert [word for words in sruns for word in words if word.startswith("--nodelist")] == [
        "--nodelist=a1",
        "--nodelist=a2",
    ]
    assert not any(line.startswith("#   ./launch") for line in lines)


def test_a_cluster_stands_in_the_toml_of_the_run(
    no_gpu, no_network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = tmp_path / "mine.toml"
    (tmp_path / "hosts").write_text("gpu1 slots=2\ngpu2 slots=2\n")
    config.write_text(f'[cluster]\nhostfile = "{tmp_path}/hosts"\nmaster_port = 7000\n')
    lines = dry_run(capsys, "--config", str(config))
    assert sum("--master_port=7000" in line for line in lines) == 2
    assert main(["launch", "--config", str(config), "--nodes", "3", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert f"--nodes 3 contradicts [cluster] hostfile={tmp_path}/hosts ({config}:2)" in said


def test_the_shipped_hostfile_runs_on_this_machine(no_gpu, capsys: pytest.CaptureFixture[str]):
    assert main(["launch", "--hostfile", str(REPOSITORY / "hostfile"), "--dry-run"]) == 0
    assert "--nproc_per_node=1" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["--gpus", "2", "--device", "cpu", "--dry-run"]])
def test_help_and_dry_run_answer_at_once_and_import_no_torch(arguments: list[str]):
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from alphazero.cli.main import entry_point; entry_point()"
    )
    command = [sys.executable, "-c", program, "launch", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    fastest = 1e9
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        fastest = min(fastest, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    imported = set(run.stderr.split())
    assert "alphazero.cli.training.launch" in imported
    assert not {"torch", "deepspeed", "numpy", "pyarrow"} & imported
    assert fastest < LIMIT_S  # CPU time: other work on this machine does not count


def test_a_run_in_use_is_refused_before_ranks_start(no_gpu, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "job"
    run.mkdir(parents=True)
    with only_writer(run, "training", print):
        assert main(["launch", "--gpus", "1", "--device", "cpu", "--run-name", "job"]) == 2
    assert f"in use (training, process {os.getpid()} on" in capsys.readouterr().err
    assert not list(run.iterdir())  # its holder took the lock's file with it


@pytest.mark.parametrize(
    ("resume", "message"),
    [
        ("composit", "--resume composit: names no checkpoint"),
        ("40", "--resume 40: runs/job/checkpoints has"),
    ],
)
def test_a_resume_from_nothing_is_refused_before_ranks_start(
    no_gpu, tmp_path: Path, monkeypatch, capsys, resume: str, message: str
):
    monkeypatch.chdir(tmp_path)
    arguments = ["--gpus", "1", "--device", "cpu", "--run-name", "job", "--resume", resume]
    assert main(["launch", *arguments]) == 2
    assert f"alphazero: error: {message}" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", [["launch", "--gpus", "2"], ["train"]])
def test_other_blocks_for_a_run_are_refused_at_once_and_once(tmp_path: Path, command: list[str]):
    """Before torch is loaded: by the launcher, and by a rank that nothing started."""
    shutil.copytree(REPOSITORY / "tests/fixtures/v0/selfplay", tmp_path / "runs" / "job")
    program = (
        "import resource, sys, alphazero.cli.main as m; status = m.main(sys.argv[1:]);"
        "print(status, 'torch' in sys.modules, sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))"
    )
    words = [*command, "--device", "cpu", "--run-name", "job", "--blocks", "7"]
    run = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert run.stderr.startswith("alphazero: error: runs/job: ") and run.stderr.count("\n") == 1
    assert "blocks was 1 at step 12" in run.stderr and "is 7" in run.stderr
    status, has_torch, seconds = run.stdout.split()
    assert (status, has_torch) == ("2", "False")
    assert float(seconds) < 2 * LIMIT_S  # CPU time: other work on this machine does not count


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "flag", ["--config", "--deepspeed-config", "--deepspeed", "--hostfile", "--resume", "--data"]
)
def test_a_pipe_that_a_flag_names_is_refused_at_once(no_gpu, tmp_path, capsys, flag):
    os.mkfifo(tmp_path / "pipe.toml")
    assert main(["launch", flag, "./pipe.toml", "--device", "cpu", "--dry-run"]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert "pipe.toml" in error
