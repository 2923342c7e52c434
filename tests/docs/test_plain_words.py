"""Pages, messages and help are in plain engineering English: none has a phrase of the list below.

The package may have as many as the number below, which only falls: lower it where you removed some.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docs.pages import PAGES
from tests.support.paths import REPOSITORY

# Phrase, and what to write instead.
PHRASES = {
    "told": "reported, printed, listed",
    "tells? (?:how|what|which|whether|so|of|where|it|them)": "report, print, list",
    "(?:says?|said) so": "prints a line, is reported",
    "(?:is|are|was|were) said": "is reported, listed",
    "(?:nobody|somebody|anybody|nowhere)": "no process, no move, a user",
    "(?:go|goes|going|went) on": "continues",
    "any ?more": "present tense: what is",
    "(?:earlier|previous) versions? of this": "present tense: what is",
    "earlier version": "present tense: what is",
    "(?:since|of) then": "present tense: what is",
    "(?:of before|the version before)": "present tense: what is",
    "is there and is no": "exists, but is not a",
    "unlike (?:things|ranks|numbers|lengths?)": "different",
    "what (?:it|each|they|that) (?:brings|brought)": "its effect",
    "(?:brings?|brought) nothing": "has no effect",
    "of (?:its|their|his|our) own": "separate, or leave it out",
    "the ones? (?:that|who|which)": "the noun itself",
    "for want of": "without",
    "by heart": "memorise",
    "(?:begins?|begun|beginning|made|makes?|written|starts?) anew": "again, afresh",
    "foretells?": "predicts",
    "as it comes": "unchanged",
    "shall": "must, should",
    "all the same": "still",
    "a matter of": "depends on",
}
FOUND = re.compile(rf"(?<![\w-])(?:{'|'.join(PHRASES)})(?![\w-])", re.IGNORECASE)
ALLOWED_IN_PACKAGE = 3


def phrases_in(text: str) -> list[str]:
    """The phrases of the list in a text, across line ends."""
    return FOUND.findall(re.sub(r"\s+", " ", text))


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The line and text of every string literal of a source file, docstrings and parts of f-strings too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_in_plain_words(page):
    assert not phrases_in(page.read_text(encoding="utf-8"))


def test_messages_and_help_get_plainer():
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}: {phrase}"
        for path in sorted((REPOSITORY / "alphazero").rglob("*.py"))
        for line, text in literals(path)
        for phrase in phrases_in(text)
    ]
    assert len(found) <= ALLOWED_IN_PACKAGE, "\n".join(found)


def test_the_list_finds_its_phrases_whole():
    assert phrases_in("The user is told, and\nthe run goes  on.") == ["told", "goes on"]
    assert phrases_in("untold, category of things, tell-tale, a shallow net") == []
