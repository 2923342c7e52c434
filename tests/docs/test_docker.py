"""The Dockerfile: its first layer is complete, and it is built where a Docker daemon answers."""

import shutil
import subprocess

import pytest

from tests.support.paths import REPOSITORY

DOCKERFILE = REPOSITORY / "Dockerfile"
TAG = "alphazero-test"
# For the two commands: short enough for a test, everything else as it is.
SHORT = "--steps 3 --batch-size 16 --micro-batch-size 8 --validation-interval 0"


def test_the_layer_of_dependencies_needs_no_other_files(tmp_path):
    (line,) = [line for line in DOCKERFILE.read_text().splitlines() if line.endswith("constraints.txt ./")]
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


def test_only_names_of_the_top_directory_are_ignored_there_alone():
    # Docker reads a bare name as one of the top directory; git reads it as one of any directory.
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    bare = [line for line in lines if line and not line.startswith(("#", "/", "**/", ".git/"))]
    assert bare == ["alphazero/_core.pyi"]
    assert {"**/.env", "**/*.pem", "**/*.key", "**/.ssh/", "**/.netrc"} <= set(lines)


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
