"""An object is whole when its constructor returns: nobody fills in attributes later."""

import ast
import re

from harness.code import MODULES, place, walk

# Most modules have none: the others are parsed.
_LIKE_A_GAP = re.compile(r"\.\w+: [^=\n]*$|\.\w+ = lambda|: .* = lambda", re.MULTILINE)


def gaps(text):
    """Return the lines of a module that leave an attribute to be filled in: declared
    without a value, or with a function that does nothing."""
    if not _LIKE_A_GAP.search(text):
        return []
    return [
        node.lineno
        for node in walk(ast.parse(text))
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Attribute)
            and (node.value is None or _does_nothing(node.value))
        )
        or (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Attribute)
            and _does_nothing(node.value)
        )
    ]


def _does_nothing(value):
    return isinstance(value, ast.Lambda) and isinstance(value.body, ast.Constant)


def test_a_gap_is_seen():
    assert gaps("class A:\n def f(self):\n  self.x: int\n  self.y = lambda: None") == [
        3,
        4,
    ]
    assert gaps("class A:\n def f(self):\n  self.x: int = 1\n  self.y = int") == []


def test_no_attribute_is_filled_in_later():
    found = [place(path, line) for path in MODULES for line in gaps(path.read_text())]
    assert found == []
