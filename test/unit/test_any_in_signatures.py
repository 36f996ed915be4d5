"""How many functions take or give `Any`: few, and in each room."""

import ast
import re
from collections import Counter

from harness.checkout import CHECKOUT
from harness.code import MODULES, walk

CODE = CHECKOUT / "rq"
_DEFINED = re.compile(r"^ *(?:async )?def (\w+)", re.MULTILINE)
MOST = 5.0  # percent of the signatures of a room


def room_of(path):
    """Return the room of a module; those beside the rooms count as one."""
    inner = path.relative_to(CODE)
    return inner.parts[0] if len(inner.parts) > 1 else "modules"


def signatures(path):
    """Give each function of a module, and whether its signature holds Any. Most modules
    do not name it, and parsing all takes seconds."""
    text = path.read_text()
    if not re.search(r"\bAny\b", text):
        yield from ((name, False) for name in _DEFINED.findall(text))
        return
    for node in walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield (
                node.name,
                any(
                    isinstance(part, ast.Name) and part.id == "Any"
                    for annotation in annotations(node)
                    for part in ast.walk(annotation)
                ),
            )


def annotations(node):
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg]
    found = [arg.annotation for arg in (*every, given.kwarg) if arg and arg.annotation]
    return [*found, node.returns] if node.returns else found


def shares():
    """Return for each room how many signatures hold Any, and how many there are."""
    loose, every = Counter(), Counter()
    for path in MODULES:
        for _, has_any in signatures(path):
            every[room_of(path)] += 1
            loose[room_of(path)] += has_any
    return {room: (loose[room], every[room]) for room in sorted(every)}


def test_few_signatures_hold_any():
    too_many, rooms = {}, shares()
    for room, (loose, every) in rooms.items():
        percent = 100 * loose / every
        if percent > MOST:
            too_many[room] = f"{loose} of {every}"
    assert too_many == {}
    loose, every = map(sum, zip(*rooms.values(), strict=True))
    assert loose <= every * MOST / 100
