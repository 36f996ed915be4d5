"""Names say what they hold: words that hold anything stay out of the rooms that are clean."""

import ast
from pathlib import Path

import pytest

ROOMS = Path(__file__).resolve().parent.parent.parent / "rq"
# Paths below rq/ whose names are plain; it grows.
CLEAN = (
    "access",
    "back_off.py",
    "beneath.py",
    "causes.py",
    "cleaner.py",
    "cli",
    "client.py",
    "command.py",
    "config",
    "control.py",
    "disk.py",
    "durable",
    "errors.py",
    "fieldnames.py",
    "health.py",
    "helper.py",
    "host_back_off.py",
    "journal",
    "kinds.py",
    "layout.py",
    "logs.py",
    "message",
    "moments.py",
    "names.py",
    "nesting.py",
    "offline.py",
    "outbound",
    "passwords.py",
    "pipe.py",
    "proc",
    "published.py",
    "queues",
    "relay",
    "replies.py",
    "router",
    "scandir",
    "script.py",
    "scripts",
    "sentences.py",
    "share",
    "spark",
    "spool",
    "states.py",
    "supervisor",
    "timers",
    "transfers.py",
    "trash.py",
    "users.py",
    "visible.py",
    "watch.py",
    "web",
    "webhook",
    "wire.py",
    "wording.py",
)
# What a variable, a function, a class or a module may not be called, alone.
RIDDLES = frozenset(
    {"one", "found", "asked", "known", "made", "told", "shown"}
    | {"hearing", "ending", "making", "changing", "asking", "owing", "keyed"}
    | {"ghosts", "turns", "together", "staying", "resident"}
)


def names_of(tree):
    """Give each name that a module defines, and its line; fields of what is JSON
    elsewhere (TypedDict) are called as they are there."""
    fields = {
        id(line.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and "TypedDict" in map(ast.unparse, node.bases)
        for line in node.body
        if isinstance(line, ast.AnnAssign)
    }
    for node in ast.walk(tree):
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


@pytest.mark.parametrize("room", CLEAN)
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
