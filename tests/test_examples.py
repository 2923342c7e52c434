"""The notebooks in examples/: every cell runs, from a clean checkout, in an interpreter of its own.

Their code cells are executed in order in one namespace, without a Jupyter kernel.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
RUN = """
import json, sys
namespace = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1]))["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
"""


@pytest.mark.slow  # it imports the embedded games and trains for ten steps
@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.name)
def test_every_cell_of_a_notebook_runs(notebook, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(notebook)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "a1a8 mate in 1" in done.stdout


@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_is_kept_without_output(notebook):
    content = json.loads(notebook.read_text())
    assert content["nbformat"] == 4
    for cell in content["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
