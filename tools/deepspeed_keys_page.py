"""Writes the tables of docs/deepspeed.md: all keys of a ds_config.json, and how a tree of such files fares.

python -m tools.deepspeed_keys_page                   the table of keys
python -m tools.deepspeed_keys_page --examples DIR    and that of the files under DIR
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from alphazero.base.errors import ConfigError
from alphazero.settings.deepspeed_file import read_deepspeed_settings
from alphazero.settings.deepspeed_keys import ALL_STAGES, BLOCKS, KEYS, Key, Meaning
from alphazero.settings.load import merge
from alphazero.settings.sections import load_config

PAGE = Path(__file__).resolve().parents[1] / "docs" / "deepspeed.md"
# What makes a JSON file one of DeepSpeed's settings.
TELLING = {"train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization", "fp16", "bf16"}
TITLES = {
    Meaning.HONOURED: "Honoured: they set a setting of ours, which is a flag too",
    Meaning.PASSED_ON: "Passed on to DeepSpeed",
    Meaning.IGNORED: "Ignored: the results are the same, and a line says so",
    Meaning.REFUSED: "Refused where they ask for something: the results would be others",
}


def key_tables() -> str:
    """The tables of all keys."""
    return "\n\n".join(f"### {TITLES[meaning]}\n\n{_table(meaning)}" for meaning in Meaning)


def _table(meaning: Meaning) -> str:
    has_settings = meaning is Meaning.HONOURED
    rows = [("key", "sets", "") if has_settings else ("key", "")]
    for key in KEYS:
        if key.meaning is meaning and not (key.path in BLOCKS and not key.sets):
            rows.append(_row(key, has_settings=has_settings))
    lines = [f"| {' | '.join(row)} |" for row in dict.fromkeys(rows)]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _row(key: Key, *, has_settings: bool) -> tuple[str, ...]:
    name = f"`{key.path}`"
    if key.variants:
        name += f" ({', '.join(key.variants)})"
    if not has_settings:
        stages = "" if key.stages == ALL_STAGES else f"; ZeRO {', '.join(map(str, key.stages))}"
        return name, key.why + stages
    sets = ", ".join(f"`{target.partition('.')[2]}`" for target in key.sets)
    default = "" if key.default is None else f"; absent: {json.dumps(key.default)}"
    return name, sets, key.why + default


@dataclass(frozen=True)
class Verdict:
    """How a file fares: what is wrong with it ("" where it is accepted), and what of it is ignored."""

    path: str
    refused: str
    ignored: str


def verdicts(directory: Path) -> Iterator[Verdict]:
    """Of every file of DeepSpeed's settings under a directory, by path."""
    for path in sorted(directory.rglob("*.json")):
        if not _is_deepspeeds(path):
            continue
        try:
            settings = read_deepspeed_settings(path)
            config = merge(load_config("chess_cpu", {}), settings)
        except ConfigError as error:
            said = re.sub(r"^\S+:\d+: ", "", str(error))
            yield Verdict(str(path.relative_to(directory)), said.partition(" = ")[0], "")
            continue
        stage = config.training.zero_stage
        ignored = ", ".join(f"`{one.path}`" for one in settings.ignored if stage in one.stages)
        yield Verdict(str(path.relative_to(directory)), "", ignored)


def _is_deepspeeds(path: Path) -> bool:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return False
    return isinstance(table, dict) and bool(TELLING & table.keys())


def file_table(directory: Path) -> str:
    """The table of the files under a directory."""
    lines = ["| file | verdict | the key that is refused, or keys that are ignored |", "|---|---|---|"]
    for one in verdicts(directory):
        verdict, keys = ("refused", f"`{one.refused}`") if one.refused else ("accepted", one.ignored)
        lines.append(f"| {one.path} | {verdict} | {keys} |")
    return "\n".join(lines)


def between(text: str, name: str, content: str) -> str:
    """A page with `content` between the two marks of this name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    assert rest and after, f"no {begin} in the page"
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def main() -> None:
    """Write the page anew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=Path, metavar="DIR", help="a tree of JSON files")
    args = parser.parse_args()
    page = between(PAGE.read_text(), "keys", key_tables())
    if args.examples:
        page = between(page, "files", file_table(args.examples))
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
