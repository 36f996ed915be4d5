"""What other rooms know of a spool they ask it; none reaches into what it is made of."""

import ast
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
INSIDE = frozenset(
    {"entries", "gone", "ids", "journal", "keys", "lagging", "unsettled", "watches"}
)
SOURCES = [
    path
    for path in sorted((CHECKOUT / "rq").rglob("*.py"))
    if path.parent.name != "spool"
]


def reaches(text):
    """Return the insides of spools that a module's text names, with their lines."""
    return [
        (node.lineno, node.attr)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr in INSIDE
        and ast.unparse(node.value).split(".")[-1].lstrip("_") == "spool"
    ]


def test_a_reach_is_seen():
    assert sorted(reaches("a = owner.spool.entries[1]\nb = self._spool.keys")) == [
        (1, "entries"),
        (2, "keys"),
    ]
    assert reaches("spool.keys_of(1)") == []


@pytest.mark.parametrize(
    "path", SOURCES, ids=lambda path: str(path.relative_to(CHECKOUT))
)
def test_no_room_reaches_into_a_spool(path):
    assert reaches(path.read_text()) == []
