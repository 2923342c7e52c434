"""The table of options, in the documentation and on the wire."""

from pathlib import Path

import pytest

from alphazero.base.errors import ConfigError
from alphazero.play.uci.options import TABLE, Options
from tests.support.paths import REPOSITORY


def test_the_documentation_has_the_table_of_the_code() -> None:
    text = (Path(REPOSITORY) / "docs" / "play.md").read_text(encoding="utf-8")
    rows = []
    for option in TABLE:
        kind = f"{option.low:g} to {option.high:.15g}" if option.kind in ("spin", "number") else option.kind
        rows.append([option.name, kind, option.default or "-"])
    table = text.partition("| option | type | default | what it does |\n|---|---|---|---|\n")[2].partition(
        "\n\n"
    )[0]
    assert [line.strip("| ").split(" | ")[:3] for line in table.splitlines()] == rows


def test_every_default_is_a_value_that_can_be_set() -> None:
    options = Options()
    for option in TABLE:
        assert options.set(option.name.upper(), option.default) is option
        assert options[option.name] == Options()[option.name]
        assert option.line.startswith(f"option name {option.name} type ")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("Hsah", "1", "did you mean Hash"),
        ("Hash", "-1", "option Hash: '-1': expected a whole number from 1 to 1048576"),
        ("Hash", "1.5", "expected a whole number"),
        ("CPuct", "nan", "option CPuct: 'nan': expected a number from 0 to 100"),
        ("Ponder", "yes", "option Ponder: 'yes': expected true or false"),
        ("Hash", "9" * 5000, "expected a whole number"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        Options().set(name, value)
    assert "\n" not in str(refused.value)


def test_an_empty_string_is_empty() -> None:
    options = Options({"WeightsFile": "<empty>"})
    assert options["WeightsFile"] == ""
