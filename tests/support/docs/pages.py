"""The pages of the documentation and their blocks of code."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import REPOSITORY

README = REPOSITORY / "README.md"
EXAMPLES = REPOSITORY / "examples" / "README.md"
DOCS = tuple(sorted((REPOSITORY / "docs").glob("*.md")))
PAGES = (README, REPOSITORY / "CONTRIBUTING.md", EXAMPLES, *DOCS)
# Blocks in these languages are run by the tests; a plain fence holds output, a tree or a format.
RUN = ("sh", "python")
SHOWN = ("", "cpp", "diff", "toml", "dockerfile", "mermaid")
FENCED = re.compile(r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^ *```", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its first line's number on the page, and why it is not run where it is not."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page in their order, without the indentation of a list."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCED.finditer(text):
        reason = NOT_RUN.search(text[: match.start()])
        line = text.count("\n", 0, match.start("text")) + 1
        inside = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        found.append(Block(page, line, match["language"], inside, reason[1] if reason else None))
    return found


def runnable(page: Path, language: str) -> list[Block]:
    """The blocks of a page that the tests run."""
    return [block for block in blocks(page) if block.language == language and block.not_run is None]


def pages_with(language: str) -> list[Path]:
    """The pages that have such blocks."""
    return [page for page in PAGES if runnable(page, language)]
