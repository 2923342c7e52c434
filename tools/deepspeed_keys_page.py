"""Writes all keys of a ds_config.json into docs/deepspeed.md, or counts which files of a tree are accepted.

python -m tools.deepspeed_keys_page                   writes the page
python -m tools.deepspeed_keys_page --examples DIR    counts the files under DIR
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from alphazero.base.errors import ConfigError
from alphazero.base.hjson_file import read_hjson
from alphazero.settings.deepspeed_file import read_deepspeed_settings
from alphazero.settings.deepspeed_key import ALL_STAGES, Key, Meaning
from alphazero.settings.deepspeed_keys import BLOCKS, KEYS
from alphazero.settings.load import load_config, merge

PAGE = Path(__file__).resolve().parents[1] / "docs" / "deepspeed.md"
# A JSON file with one of these keys is a DeepSpeed configuration.
KEYS_OF_A_FILE = {"train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization", "fp16", "bf16"}
TITLES = {
    Meaning.HONOURED: "Honoured: they set a setting of this program",
    Meaning.PASSED_ON: "Passed on to DeepSpeed (at these ZeRO stages)",
    Meaning.IGNORED: "Ignored, with a line that gives the reason",
    Meaning.REFUSED: "Refused unless off: the results would change",
}
WRAPPER = textwrap.TextWrapper(120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def key_tables() -> str:
    """All keys: a table of those that set a setting, the others in lists."""
    parts = []
    for meaning in Meaning:
        keys = [key for key in KEYS if key.meaning is meaning and not (key.path in BLOCKS and not key.sets)]
        shown = _table(keys) if meaning is Meaning.HONOURED else _list(keys)
        parts.append(f"### {TITLES[meaning]}\n\n{shown}")
    return "\n\n".join(parts)


def _table(keys: list[Key]) -> str:
    rows: dict[str, list[str]] = {}
    for key in keys:
        sets = ", ".join(f"`{target.partition('.')[2]}`" for target in key.sets)
        default = "" if key.default is None else f"; absent: {json.dumps(key.default)}"
        rows.setdefault(f"{sets} | {key.why}{default}", []).append(_name(key))
    lines = (f"| {', '.join(names)} | {meaning} |" for meaning, names in rows.items())
    return "\n".join(["| key | sets | meaning |", "|---|---|---|", *lines])


def _list(keys: list[Key]) -> str:
    """Refused keys by reason, others by block with the ZeRO stages at which they count."""
    shared: dict[str, list[str]] = {}
    for key in keys:
        if key.meaning is Meaning.REFUSED:
            label, name = key.why, _name(key)
        else:
            label = f"`{key.block}`" if key.block else "top level"
            stages = "" if key.stages == ALL_STAGES else f" ({', '.join(map(str, key.stages))})"
            name = f"`{key.name}`{stages}"
        shared.setdefault(label, []).append(name)
    lines = (f"- {label}: {', '.join(dict.fromkeys(names))}" for label, names in shared.items())
    return "\n".join(map(WRAPPER.fill, lines))


def _name(key: Key) -> str:
    return f"`{key.path}`" + (f" ({', '.join(key.variants)})" if key.variants else "")


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a file, "" where it is accepted."""

    path: str
    refused: str


def verdicts(directory: Path) -> Iterator[Verdict]:
    """Of every file of DeepSpeed's settings under a directory, by path."""
    for path in sorted(directory.rglob("*.json")):
        if not _is_deepspeeds(path):
            continue
        try:
            merge(load_config("chess_cpu", {}), read_deepspeed_settings(path))
            refused = ""
        except ConfigError as error:
            refused = re.sub(r"^\S+:\d+: ", "", str(error)).partition(" = ")[0]
        yield Verdict(str(path.relative_to(directory)), refused)


def _is_deepspeeds(path: Path) -> bool:
    with contextlib.suppress(ConfigError):
        return bool(KEYS_OF_A_FILE & read_hjson(path).table.keys())
    return False


def print_counts(directory: Path) -> None:
    """How many files under a directory are accepted, and how many each key has refused."""
    counts = Counter(one.refused or "accepted" for one in verdicts(directory))
    for name, count in counts.most_common():
        print(f"{count:5} {name}")


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
    if args.examples:
        print_counts(args.examples)
    else:
        PAGE.write_text(between(PAGE.read_text(), "keys", key_tables()))


if __name__ == "__main__":
    main()
