"""No page tells to fetch RQ from a registry that has none: it is built from the checkout."""

from __future__ import annotations

import re

import pytest
from harness import documents
from harness.checkout import CHECKOUT

PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
INSTALLS = re.compile(r"\b(?:pip3?|pipx|uv tool|apt|apt-get) install\b[^\n`]*")
RUNS = re.compile(r"\b(?:docker|podman) (?:pull|run)\b[^\n`]*")
OURS = re.compile(r"\brq(?:-spool|_spool)?\b")
ELSEWHERE = re.compile(r"\s[\w-]+(?:\.[\w-]+)*/(?:[\w-]+/)*rq\b")  # REGISTRY/…/rq
HERE = re.compile(r"dist/|WHEEL\.whl")


def promised(text: str) -> list[str]:
    """Return the commands of a text that would find nothing."""
    joined = text.replace("\\\n", " ")
    installs = [line for line in INSTALLS.findall(joined) if OURS.search(line)]
    return [
        *(line for line in installs if not HERE.search(line)),
        *(line for line in RUNS.findall(joined) if ELSEWHERE.search(line)),
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_promises_what_is_published_nowhere(page):
    assert promised(documents.text(page)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("RUN pip install rq-spool", 1),
        ("sudo apt install rq-spool", 1),
        ("docker run -d ghcr.io/x/rq", 1),
        ("pipx install dist/rq_spool-4.0.0-py3-none-any.whl", 0),
        ("sudo apt install ./dist/rq-spool_4.0.0_amd64.deb", 0),
        ("docker run -d -v rq:/var/lib/rq rq", 0),
        ("apt-get install imagemagick", 0),
    ],
)
def test_what_is_taken_for_a_promise(text, found):
    assert len(promised(text)) == found
