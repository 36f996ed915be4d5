"""What a comment or a page cites can be read here: a document that is in the checkout."""

import re

import pytest
from harness.checkout import CHECKOUT

ROOMS = ("rq", "bin", "test", "docs", "examples")
TEXTS = {"", ".py", ".sh", ".md", ".json", ".toml", ".yaml", ".service", ".rq", ".txt"}
_DOCUMENT = re.compile(r"[\w./-]*\w\.md\b( \d)?")
_INSTALLED = "/opt/rq/"  # where the service's checkout lies
_NOT_HERE = re.compile(r"\b(?:spec|design)/\w+")
# What once was, and samples of this file.
EXEMPT = {CHECKOUT / "CHANGELOG.md", CHECKOUT / "test/unit/test_citations.py"}


def texts():
    """Give the files of the checkout that people read."""
    yield from (path for path in CHECKOUT.iterdir() if path.is_file())
    for room in ROOMS:
        yield from (path for path in (CHECKOUT / room).rglob("*") if path.is_file())


def is_here(name, place):
    """Return whether a document lies where this name says, for a reader at `place`."""
    name = name.removeprefix(_INSTALLED)
    starts = (CHECKOUT, place, CHECKOUT / "docs/reference", CHECKOUT / "docs/guide")
    return any((start / name).is_file() for start in starts)


def astray(text, place):
    """Give what a text cites and this checkout does not have."""
    if ".md" not in text and not _NOT_HERE.search(text):
        return
    for cited in _DOCUMENT.finditer(text):
        name, number = cited[0].partition(" ")[0], cited[1]
        if number or not is_here(name, place):
            yield cited[0]
    yield from _NOT_HERE.findall(text)


def test_each_document_that_is_cited_is_in_the_checkout():
    wrong = [
        f"{path.relative_to(CHECKOUT)}: {name}"
        for path in texts()
        if path.suffix in TEXTS and path not in EXEMPT
        for name in astray(path.read_text(errors="replace"), path.parent)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text", ["as resp.md has it", "spec/broker.md", "broker.md 2 says", "see design/x"]
)
def test_one_that_is_elsewhere_would_be_seen(text):
    assert list(astray(text, CHECKOUT / "rq"))


@pytest.mark.parametrize(
    "text", ["docs/reference/broker.md", "ARCHITECTURE.md", "its page, broker.md, says"]
)
def test_one_that_is_here_is_not(text):
    assert list(astray(text, CHECKOUT / "rq")) == []
