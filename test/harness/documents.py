"""Reading the documents: pages, sections, tables and examples."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.checkout import CHECKOUT

REFERENCE = CHECKOUT / "docs/reference"
GUIDE = CHECKOUT / "docs/guide"
PAGES = sorted(
    [
        *(CHECKOUT / name for name in ("README.md", "PROTOCOLS.md", "THOUGHTS.md")),
        *(CHECKOUT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md")),
        CHECKOUT / "CHANGELOG.md",
        *(CHECKOUT / "docs").rglob("*.md"),
        *(CHECKOUT / "examples").rglob("*.md"),
    ]
)
SERVED = "127.0.0.1:3333"  # where the examples ask
WORD = re.compile(r"`([^`]+)`")
_FENCE = re.compile(r"^```(\w*) ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A fenced block: its language, the word behind it, and its text."""

    language: str
    use: str
    text: str
    page: str


@cache
def text(page: Path) -> str:
    return page.read_text()


@cache
def section(page: Path, title: str) -> str:
    """Return the text of a section, those below it included."""
    head = re.search(rf"^(#+) {re.escape(title)}$", text(page), re.MULTILINE)
    assert head, f"{page.name} has no section {title}"
    rest = text(page)[head.end() :]
    end = re.search(rf"^#{{1,{len(head[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start() if end else None]


def tables(words: str) -> list[list[list[str]]]:
    """Return the tables in a text, the rows of each as lists of cells."""
    rows: list[list[list[str]]] = [[]]
    for line in words.splitlines():
        if line.startswith("|"):
            rows[-1].append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif rows[-1]:
            rows.append([])
    return [table for table in rows if table]


def rows(words: str, head: str) -> list[list[str]]:
    """Return the rows of the table whose first cell is `head`."""
    return next(table[2:] for table in tables(words) if table[0][0] == head)


def first_words(words: str, head: str) -> set[str]:
    """Return the words in the first column of a table."""
    return {word for row in rows(words, head) for word in WORD.findall(row[0])}


def examples(page: Path) -> list[Example]:
    return [
        Example(language=language, use=use, text=block, page=page.name)
        for language, use, block in _FENCE.findall(text(page))
    ]


def examples_of(language: str, use: str, place: Path = REFERENCE) -> list[str]:
    """Return the examples of one kind on all pages of the reference, or of the guide."""
    return [
        example.text
        for page in sorted(place.glob("*.md"))
        for example in examples(page)
        if (example.language, example.use) == (language, use)
    ]


def play(example: str, port: int, where: Path) -> str:
    """Run an example in the shell against the web at a port; return what it prints."""
    text = example.replace(SERVED, f"localhost:{port}")
    ran = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", text],
        cwd=where,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    return ran.stdout


def prose(page: Path) -> str:
    """Return a page without its blocks."""
    return _FENCE.sub("", text(page))


def anchors(page: Path) -> set[str]:
    """Return the names by which a link can point into a page, as the forges make them."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def links(page: Path) -> set[str]:
    return set(re.findall(r"\]\(([^)\s]+)\)", prose(page)))
