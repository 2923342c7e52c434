"""The Dockerfile: its first layer is complete, and it is built where a Docker daemon answers."""

import re
import shutil
import subprocess

import pytest

from tests.support.paths import REPOSITORY

DOCKERFILE = REPOSITORY / "Dockerfile"
TAG = "alphazero-test"
# For the two commands: short enough for a test, everything else as it is.
SHORT = "--steps 3 --batch-size 16 --micro-batch-size 8 --validation-interval 0"


def test_the_layer_of_dependencies_needs_no_other_files(tmp_path):
    (line,) = [
        line
        for line in DOCKERFILE.read_text().splitlines()
        if line.startswith("COPY") and line.endswith(" ./")
    ]
    for name in line.split()[2:-1]:
        shutil.copy(REPOSITORY / name, tmp_path)
    command = ["make", "--dry-run", ".venv/dependencies.stamp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_git_ignores_docker_ignores_as_well():
    def names(file: str) -> set[str]:
        lines = (REPOSITORY / file).read_text().splitlines()
        words = {line.removeprefix("**/").strip("/") for line in lines}
        return {word for word in words if word and not word.startswith("#")}

    assert names(".gitignore") <= names(".dockerignore")


def docker_ignores(path: str) -> bool:
    """As Docker's documentation of .dockerignore has it: the last pattern that matches decides."""
    parts = path.split("/")
    above = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    ignored = False
    for line in (REPOSITORY / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = re.escape(line.removeprefix("!").strip("/"))
            pattern = pattern.replace(r"\*\*/", "(?:.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
            if any(re.fullmatch(pattern, one) for one in above):
                ignored = not line.startswith("!")
    return ignored


def test_docker_leaves_out_no_file_that_git_has():
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert [path for path in listed.stdout.splitlines() if docker_ignores(path)] == []


@pytest.mark.parametrize("directory", ["", "a/", "a/b/", "examples/", "examples/a/", "docs/"])
def test_docker_leaves_out_what_is_private_or_was_made_here_in_every_directory(directory):
    made = (
        ".env",
        ".env.local",
        "site.pem",
        "a.key",
        "id_ed25519",
        ".ssh/config",
        ".aws/credentials",
        ".netrc",
    )
    made += (
        ".git/config",
        "hosts.txt",
        "mine.pgn",
        "best.pt",
        "stores/a/manifest.json",
        "runs/a/config.json",
    )
    assert [name for name in made if not docker_ignores(directory + name)] == []


def test_the_bases_are_named_by_digest():
    digest = r"@sha256:[0-9a-f]{64}\b"
    assert re.search(rf"(?m)^ARG BASE=debian:12-slim{digest}$", DOCKERFILE.read_text())
    page = (REPOSITORY / "docs/docker.md").read_text()
    assert re.search(rf"--build-arg BASE=nvidia/cuda:[\w.-]+{digest}", page)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_image_is_built_and_both_commands_work_in_it():
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    if subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
        pytest.skip("no Docker daemon answers")
    subprocess.run(["docker", "build", "--tag", TAG, str(REPOSITORY)], check=True)
    run = ["docker", "run", "--rm", "--shm-size", "1g", TAG]
    user = subprocess.run([*run, "id", "-u"], check=True, capture_output=True, text=True).stdout
    assert user.strip() != "0"
    subprocess.run([*run, "make", "train", f"ARGS={SHORT}"], check=True)
    subprocess.run([*run, "make", "test", "PYTEST_ADDOPTS=tests/base/test_text.py"], check=True)
