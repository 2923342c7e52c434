"""Hjson as DeepSpeed reads it: the same values as the package hjson, the line of each key, and an end."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphazero.base.errors import ConfigError
from alphazero.base.hjson_file import read_hjson

hjson = pytest.importorskip("hjson")  # comes with DeepSpeed
EVERYTHING = """\ufeff# comments
// of three
/* kinds,
   one of several lines */
{
  "quoted": "a \\"b\\" \\u00e9 \\ud83d\\ude00 // no comment", 'single': 'it\\'s',
  plain: a text without quotes, up to the end # of its line
  numbers: [1, -2, 5e8, 2.5 // no more
    0.001 /* neither */, 1e-8,], truths: [true, false, null,],
  "not a number": 5 apples
  lines:
    '''
    two
      lines
    '''
  trailing: {a: 1, b: {},},
}
# end
"""
PIECES = ["{", "}", "[", "]", ",", ":", " ", "\n", "\t", '"a"', "'b'", "c", "d e", "1", "-2.5e3", "01", "0x1"]
PIECES += ["true", "null", "false", "# f\n", "// g\n", "/* h\n */", "/", "'", '"', "\\", "\n'''i\n  j'''"]
PIECES += ["\n k: ", "\n l: 1,", "m: {", "n: [1, 2,]", '"\\u0041"', "é"]


def theirs(text):
    def once(pairs):
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    try:
        value = hjson.loads(text, object_pairs_hook=once)
    except (ValueError, IndexError, AssertionError):
        return None
    return value if isinstance(value, dict) else None


def ours(tmp_path, text):
    path = tmp_path / "ds.json"
    path.write_text(text, encoding="utf-8")
    try:
        return read_hjson(path).table
    except ConfigError as error:
        assert "\n" not in str(error) and str(path) in str(error)
        return None


@pytest.mark.parametrize(
    "text",
    [
        EVERYTHING,
        EVERYTHING.replace("\n", "\r\n"),
        "",
        "# nothing\n",
        "a: 1\nb: {c: 2}",
        '{"a":"x" "b":"y"}',
        *("[1]", "3", "{a:}", "{a b: 1}", "{a: 1,, b: 2}", "{,}", "{a: 1} b", "{a: 'x\ny'}", "{a: '''x'"),
    ],
)
def test_values_are_those_of_deepspeeds_reader(tmp_path, text):
    assert ours(tmp_path, text) == theirs(text)


@settings(max_examples=500, deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=25), braces=st.booleans())
def test_any_text_has_the_values_of_deepspeeds_reader(tmp_path_factory, pieces, braces):
    text = "".join(pieces)
    text = f"{{\n{text}\n}}" if braces else "\n" + text
    assert ours(tmp_path_factory.getbasetemp(), text) == theirs(text)


def test_the_line_of_each_key_is_known(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(EVERYTHING, encoding="utf-8")
    lines = read_hjson(path).lines
    expected = {("quoted",): 6, ("single",): 6, ("plain",): 7, ("truths",): 9, ("trailing", "b"): 16}
    assert {key: lines[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{a: 1,\n b: 2,\n a: 3}", r"ds\.json:3: a: first on line 1"),
        ("{a: [{b: 1}, {b: 1,\n b: 2}]}", r"ds\.json:2: a\.\[1\]\.b: first on line 1"),
        ("{\n a: True}\n", r"ds\.json:3: "),
        ("{\n a: 1\n", r"ds\.json:3: "),
        ('{\n "a" 1}', r"ds\.json:2: "),
        ("{a: /* b }", r"ds\.json: "),
        (
            "{\n a: [1,\n -1e999]}",
            r"ds\.json:3: a\.\[1\] = -1e999: too large; expected a number below 1e308$",
        ),
        ("a:\n " + "9" * 5000, r"ds\.json:2: a = 9+\.\.\. \(5,000 characters\): too large"),
        ("a:\n" + "{a: " * 60, r"ds\.json:2: .*nested too deeply"),
        ("a:\n" + "[" * 60, r"ds\.json:2: .*nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "ds.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_hjson(path)


@pytest.mark.parametrize(
    "text",
    [
        "{a: " * 16_000,
        "[" * 60_000,
        "a: n" + "," * 60_000,
        "a: " + "1" * 30_000 + "," * 30_000,
        "a: [" + "''''''" * 10_000,
        "/*" * 30_000,
        "{a: /" + "*/" * 30_000,
        "\n".join(f"k{i}: {i}" for i in range(4_000)),
    ],
)
def test_a_hostile_file_takes_no_more_than_a_second(tmp_path, text):
    start = time.process_time()
    ours(tmp_path, text)
    assert time.process_time() - start < 1
