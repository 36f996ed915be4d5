"""What other rooms know of a spool they ask it; none reaches into what it is made of."""

import ast
import re

from harness.code import MODULES, place, walk

INSIDE = frozenset(
    {"entries", "gone", "ids", "journal", "keys", "lagging", "unsettled", "watches"}
)
_LIKE_A_REACH = re.compile(rf"spool\s*\.\s*({'|'.join(sorted(INSIDE))})\b")


def reaches(text):
    """Return the insides of spools that a module's text names, with their lines."""
    if not _LIKE_A_REACH.search(text):
        return []
    return [
        (node.lineno, node.attr)
        for node in walk(ast.parse(text))
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


def test_no_room_reaches_into_a_spool():
    found = [
        f"{place(path, line)} {name}"
        for path in MODULES
        if path.parent.name != "spool"
        for line, name in reaches(path.read_text())
    ]
    assert found == []
