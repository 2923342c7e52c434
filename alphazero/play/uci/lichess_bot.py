"""`alphazero uci --lichess-bot DIR`: the engine's script, and the section of config.yml that starts it.

https://github.com/lichess-bot-devs/lichess-bot: config.yml begins as a copy of config.yml.default.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from alphazero.base.errors import ConfigError
from alphazero.base.files import naming, replacing
from alphazero.base.text import reason
from alphazero.games.registry import CHESS
from alphazero.machine.environment import START
from alphazero.play.uci.options import Options, find_option

FLAG = "--lichess-bot"
NAME = "alphazero"
CONFIG, DEFAULT = "config.yml", "config.yml.default"
EXECUTABLE = 0o755
# Games that differ: until move 8 moves are drawn, of those that lack at most 2 points of winning chance.
OPTIONS = {
    "Move Overhead": "200",
    "Threads": "2",
    "Hash": "256",
    "Temperature": "0.6",
    "TempCutoffMove": "8",
    "TempValueCutoff": "2",
}
# The section and its indented lines; lines of comments belong to it where indented ones follow.
ENGINE = re.compile(r"^engine:.*\n(?:(?:[ \t]*(?:#.*)?\n)*[ \t]+[^\s#].*(?:\n|\Z))*", re.MULTILINE)


def write_files(
    directory: Path, weights: str, given: Mapping[str, str], arguments: Sequence[str], *, force: bool
) -> tuple[Path, Path]:
    """Write both files and return their paths. given: options by the names that the user typed.

    arguments: more of `alphazero uci`. force: files that exist may be replaced. Raises WeightsError and
    CheckpointError for the network; ConfigError where it plays no chess, where a file exists, and for what is
    no lichess-bot.
    """
    from alphazero.network.weights.open_network import open_weights

    chosen = {**OPTIONS, **{find_option(name).name: value for name, value in given.items()}}
    options = Options(chosen)
    script, config = directory / "engines" / NAME, directory / CONFIG
    source = config if config.exists() else directory / DEFAULT
    if not source.is_file():
        raise ConfigError(f"{FLAG} {directory}: no {DEFAULT}; expected the directory of lichess-bot")
    if script.exists() and not force:
        raise ConfigError(f"{script}: already exists (--force replaces it)")
    if config.exists() and not force:
        raise ConfigError(f"{config}: already exists (--force replaces its section engine)")
    try:
        before = source.read_text(encoding="utf-8")
    except ValueError as error:
        raise ConfigError(f"{source}: {reason(error)}; expected UTF-8") from error
    if (game := open_weights(weights).config.game) != CHESS:
        raise ConfigError(f"{weights}: plays {game}; expected {CHESS}, as lichess-bot does")
    if not ENGINE.search(before):
        raise ConfigError(f"{source}: no section engine; expected one, as lichess-bot's {DEFAULT} has it")
    lines = [f"    {name}: {json.dumps(options[name])}" for name in chosen if name != "WeightsFile"]
    section = f'engine:\n  dir: "./engines/"\n  name: "{NAME}"\n  protocol: "uci"\n  ponder: true\n'
    section += "\n".join(["  uci_options:", *lines, ""])
    command = [sys.executable, START, "uci", f"--weights={weights}", *arguments]
    script.parent.mkdir(exist_ok=True)
    # Names hold from here, wherever lichess-bot is started.
    here = shlex.quote(str(Path.cwd()))
    _write(script, f"#!/bin/sh\ncd {here} || exit 1\nexec {shlex.join(command)}\n", EXECUTABLE)
    _write(config, ENGINE.sub(lambda match: section, before, count=1), source.stat().st_mode & 0o777)
    return script, config


def _write(path: Path, text: str, mode: int) -> None:
    with naming(path), replacing(path) as file:
        os.fchmod(file.fileno(), mode)  # before a token is in it
        file.write(text.encode())
