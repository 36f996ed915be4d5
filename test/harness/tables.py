"""Tables of pages that are made from tables of the code: what each holds, and where.

    PYTHONPATH=.:test .venv/bin/python -m harness.tables

writes them into the pages. A test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.documents import REFERENCE
from rq.message.action import EVERYWHERE, Action
from rq.message.actions import ACTIONS

Row = Sequence[str]
NONE = "\N{EN DASH}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A table of a page that is made: known by its first line."""

    page: Path
    head: Row
    rows: Callable[[], Iterable[Row]]

    @property
    def text(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows()]
        return "".join(f"{_line(row)}\n" for row in lines)

    @property
    def told(self) -> str:
        """Return the table as the page has it."""
        text = self.page.read_text()
        lines = text[text.index(_line(self.head)) :].splitlines(keepends=True)
        end = next((n for n, line in enumerate(lines) if line[0] != "|"), len(lines))
        return "".join(lines[:end])

    def write(self) -> None:
        text = self.page.read_text()
        self.page.write_text(text.replace(self.told, self.text))


def _line(row: Row) -> str:
    is_rule = set("".join(row)) == {"-"}
    return f"|{'|'.join(row)}|" if is_rule else f"| {' | '.join(row)} |"


def _action(row: Action) -> Row:
    takes = [f"`{t.name}`{'' if t.is_required else '?'}" for t in row.takes]
    old = {word for words in row.aliases.values() for word in words}
    where = "" if row.doors == EVERYWHERE else ", ".join(sorted(row.doors))
    states = [f"`{state}`" for state in row.states]
    return (
        f"`{row.word}`",
        row.about,
        ", ".join([*states, *(f"(`{state}`)" for state in row.removes)]),
        ", ".join(takes) or NONE,
        row.role,
        f"`{row.command}`",
        where or "everywhere",
        ", ".join(f"`{word}`" for word in sorted(old)) or NONE,
    )


MADE = {
    "actions": Made(
        page=REFERENCE / "messages.md",
        head=(
            "action",
            "what it does",
            "in",
            "with",
            "role",
            "command",
            "doors",
            "old words",
        ),
        rows=lambda: map(_action, ACTIONS.values()),
    )
}

if __name__ == "__main__":
    for made in MADE.values():
        made.write()
