"""Names say what they hold: words that fit anything stay out of the code."""

import ast
from pathlib import Path

import pytest
from harness.code import walk

ROOMS = Path(__file__).resolve().parent.parent.parent / "rq"
# What a variable, a function, a class or a module may not be called, alone.
RIDDLES = frozenset(
    {"one", "found", "asked", "known", "made", "told", "shown"}
    | {"hearing", "ending", "making", "changing", "asking", "owing", "keyed"}
    | {"ghosts", "turns", "together", "staying", "resident"}
)


def names_of(tree):
    """Give each name that a module defines, and its line; fields of what is JSON
    elsewhere (TypedDict) are called as they are there."""
    nodes = list(walk(tree))
    fields = {
        id(line.target)
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and "TypedDict" in map(ast.unparse, node.bases)
        for line in node.body
        if isinstance(line, ast.AnnAssign)
    }
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in fields:
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.ClassDef(name=name):
                yield name, node.lineno


def riddles(path):
    """Return the names of a module that say nothing, with their places."""
    names = [(path.stem, 1), *names_of(ast.parse(path.read_text()))]
    return [
        f"{path.relative_to(ROOMS)}:{line} {name}"
        for name, line in names
        if name.strip("_").lower() in RIDDLES
    ]


def rooms():
    """Return the rooms and the modules beside them."""
    return sorted(
        path.name
        for path in ROOMS.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    )


@pytest.mark.parametrize("room", rooms())
def test_names_say_what_they_hold(room):
    place = ROOMS / room
    modules = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    assert modules
    assert [text for path in modules for text in riddles(path)] == []


def test_fields_of_json_are_called_as_they_are_there():
    code = "class Row(TypedDict):\n found: int\nclass Value:\n found: int\nasked = 1"
    assert list(names_of(ast.parse(code))) == [
        ("Row", 1),
        ("Value", 3),
        ("asked", 5),
        ("found", 4),
    ]
