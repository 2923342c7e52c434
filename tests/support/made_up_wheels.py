"""Wheels of packages that do not exist, as pip reads them."""

import zipfile
from collections.abc import Sequence
from pathlib import Path


def write_wheel(
    directory: Path, name: str, version: str, requires: Sequence[str] = (), tag: str = "py3-none-any"
) -> Path:
    """A wheel with one module of the package's name."""
    path = directory / f"{name}-{version}-{tag}.whl"
    place = f"{name}-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{place}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{place}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{place}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {**files, f"{place}/RECORD": record}.items():
            wheel.writestr(file, text)
    return path
