"""Where a module can be changed by a little so that it means something else.

Changed is what rules are made of: comparisons, `and`, `or`, `not`, plus and minus, 0 and 1,
True and False, and calls and raises that stand alone. Not what only annotates, documents,
decorates or logs. A moment is passed, but hardly ever met: where a comparison is with now,
before becomes after, for `<` instead of `<=` would mean the same.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

_OTHER = {
    "==": "!=",
    "!=": "==",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
    "and": "or",
    "or": "and",
    "+": "-",
    "-": "+",
}
_OPERATOR = re.compile("|".join(map(re.escape, sorted(_OTHER, key=len, reverse=True))))
_AFTER = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_NOW = re.compile(r"\b(now|mono)\b|\btime\.(time|monotonic)\(\)")
_CONSTANTS = {"True": "False", "False": "True", "0": "1", "1": "2"}
# Nor points at which tests kill: whoever uses RQ never comes to one.
_LOGS = re.compile(r"(_?log|logger|logging|warnings)\.|(durable\.)?crash_point\(")


@dataclass(frozen=True, slots=True)
class Site:
    """One place of a module, and what stands there instead."""

    line: int
    start: int  # in the bytes of the module
    end: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def sites(text: str) -> list[Site]:
    """Return all places of a module, in order."""
    finder = _Finder(text)
    finder.visit(ast.parse(text))
    return sorted(finder.found, key=lambda site: site.start)


class _Finder(ast.NodeVisitor):
    def __init__(self, text: str) -> None:
        self._data = text.encode()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.found: list[Site] = []

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._at(node.lineno, node.col_offset)
        return start, self._at(node.end_lineno, node.end_col_offset)

    def _add(self, line: int, start: int, end: int, new: str) -> None:
        old = self._data[start:end].decode()
        self.found.append(Site(line, start, end, old, new))

    def _between(self, nodes: list[ast.expr]) -> None:
        """Exchange each operator that stands between two operands."""
        for first, second in itertools.pairwise(nodes):
            start, end = self._span(first)[1], self._span(second)[0]
            gap = self._data[start:end].decode()
            if word := _OPERATOR.search(re.sub(r"#.*", lambda m: " " * len(m[0]), gap)):
                at = start + len(gap[: word.start()].encode())
                is_of_now = _NOW.search(f"{ast.unparse(first)} {ast.unparse(second)}")
                other = _OTHER | _AFTER if is_of_now else _OTHER
                self._add(first.lineno, at, at + len(word[0]), other[word[0]])

    def visit_Compare(self, node: ast.Compare) -> None:
        self._between([node.left, *node.comparators])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._between(node.values)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, (ast.Add, ast.Sub)):
            self._between([node.left, node.right])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start = self._span(node)[0]
            self._add(node.lineno, start, start + len("not"), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        start, end = self._span(node)
        if (text := self._data[start:end].decode()) in _CONSTANTS:
            self._add(node.lineno, start, end, _CONSTANTS[text])

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, (ast.Call, ast.Await)):
            return  # a docstring, or a yield
        start, end = self._span(node)
        text = self._data[start:end].decode()
        if not _LOGS.match(text):
            self._add(node.lineno, start, end, "pass")
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node.lineno, *self._span(node), "pass")

    def visit_Call(self, node: ast.Call) -> None:
        start, end = self._span(node)
        if not _LOGS.match(self._data[start:end].decode()):
            node.keywords = [k for k in node.keywords if k.arg != "strict"]
            self.generic_visit(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for inner in (*node.args.defaults, *node.args.kw_defaults, *node.body):
            if inner is not None:
                self.visit(inner)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for inner in node.body:
            self.visit(inner)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)


def changed(text: str) -> Iterator[tuple[Site, str]]:
    """Give each site and the module as it reads with it."""
    for site in sites(text):
        yield site, site.applied(text)
