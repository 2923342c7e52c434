"""The presets that ship with the program, by name, and what else `--config` may name."""

from __future__ import annotations

from pathlib import Path

from alphazero.base.errors import ConfigError

PACKAGE = Path(__file__).resolve().parents[1]
# Beside the package in a checkout, within it where it was installed (with ds_config.json; CMakeLists.txt).
PRESET_DIRECTORY = next(
    path for path in (PACKAGE / "share" / "configs", PACKAGE.parent / "configs") if path.is_dir()
)


def preset_names() -> list[str]:
    """Names of the presets that ship with the program."""
    return sorted(path.stem for path in PRESET_DIRECTORY.glob("*.toml"))


def find_config(source: str) -> Path:
    """The file behind `--config`: a path, or the name of a shipped preset."""
    path = Path(source)
    if path.suffix == ".toml" or path.exists():
        if not path.is_file():
            raise ConfigError(
                f"{source}: no such file; expected a TOML file or one of {', '.join(preset_names())}"
            )
        return path
    shipped = PRESET_DIRECTORY / f"{source}.toml"
    if not shipped.is_file():
        raise ConfigError(
            f"--config {source}: no such preset; expected a TOML file or one of {', '.join(preset_names())}"
        )
    return shipped


def is_preset(path: Path) -> bool:
    """True for a file that ships with the program, by its name or by its path."""
    return path.resolve().parent == PRESET_DIRECTORY.resolve()
