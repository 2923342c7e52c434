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

# The ranks import this checkout as well, installed or not.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

check='import importlib.util as u, sys
sys.exit(sys.version_info < (3, 10) or None in map(u.find_spec, ("alphazero", "psutil", "pynvml")))'
if ! "$python" -c "$check"; then
  echo "launch_distributed_training.sh: error: $python cannot run alphazero;" \
    "run 'make setup' in $root (or activate an environment that has it)" >&2
  exit 2
fi

exec "$python" -m alphazero launch "$@"
