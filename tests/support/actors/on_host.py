"""A process of the zygote that goes to a host (hosts.py): `on_host.py PID SCRIPT ARGUMENTS`.

PID: the init of the host's namespaces. Afterwards its network, mounts and name are this process's.
"""

import ctypes
import os
import runpy
import sys
from pathlib import Path


def enter(pid: str) -> None:
    """Raises OSError."""
    here = Path.cwd()
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("net", "uts", "mnt"):
        descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        if libc.setns(descriptor, 0):
            raise OSError(ctypes.get_errno(), "setns", kind)
        os.close(descriptor)
    os.chdir(here)


if __name__ == "__main__":
    enter(sys.argv[1])
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
