"""The code of RQ as tests read it that look for what no module may say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from harness.checkout import CHECKOUT

MODULES = sorted((CHECKOUT / "rq").rglob("*.py"))


def place(path: Path, line: int) -> str:
    """Return how a finding is named: its module, from the checkout, and its line."""
    return f"{path.relative_to(CHECKOUT)}:{line}"


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Give all nodes of a tree but contexts (Load, Store): `ast.walk` in half the time,
    which counts where a hundred thousand lines are read."""
    nodes = [tree]
    for node in nodes:
        yield node
        for value in vars(node).values():
            if isinstance(value, list):
                nodes += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                nodes.append(value)
