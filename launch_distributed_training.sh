#!/usr/bin/env bash
# Starts distributed training with the environment of this checkout: `--help` lists the flags.
# Works from any directory; relative paths among the arguments are the caller's.
set -euo pipefail

root="$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)"

if [[ -x "$root/.venv/bin/python" ]]; then
  python="$root/.venv/bin/python"
elif [[ -n "${VIRTUAL_ENV:-}" && -x "$VIRTUAL_ENV/bin/python" ]]; then
  python="$VIRTUAL_ENV/bin/python"
elif python="$(command -v python3)"; then
  :
else
  echo "launch_distributed_training.sh: error: no python3 found; expected Python 3.10 or newer" >&2
  exit 2
fi

# The ranks import this checkout as well, installed or not. What is installed as editable comes before PYTHONPATH.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

# No module is imported from the caller's directory, which python -c and -m look in first.
check='import sys
sys.path = [path for path in sys.path if path]
import os
from importlib.util import find_spec
if sys.version_info < (3, 10) or None in map(find_spec, ("alphazero", "psutil", "pynvml")):
    sys.exit(1)
print(os.path.dirname(os.path.dirname(os.path.realpath(find_spec("alphazero").origin or ""))))'
if ! code="$("$python" -c "$check")"; then
  echo "launch_distributed_training.sh: error: $python cannot run alphazero;" \
    "run 'make setup' in $root (or activate an environment that has it)" >&2
  exit 2
elif [[ "$code" != "$root" ]]; then
  echo "launch_distributed_training.sh: error: $python runs the code of $code; expected $root:" \
    "run 'make clean setup' there" >&2
  exit 2
fi

exec "$python" "$root/alphazero/__main__.py" launch "$@"
