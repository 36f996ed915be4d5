"""How things look: tables, colours, times, JSON, questions."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from rq.errors import BadInput
from rq.words import visible

_COLOURS = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
_COLOUR_OF = {
    "done": "green",
    "relayed": "green",
    "UP": "green",
    "err": "red",
    "FATAL": "red",
    "SCRIPTERROR": "red",
    "BACKOFF": "red",
    "run": "cyan",
    "DOWN": "yellow",
    "PAUSE": "yellow",
}


# What `add_subparsers` returns: `add_parser` adds a verb to it.
Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def number(count: int, noun: str) -> str:
    """Return how many of something there are.

    >>> number(1, "queue"), number(20, "queue")
    ('1 queue', '20 queues')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


ID = "the id of a message or its beginning, QUEUE/ID, or a URL"


def parser(verb: str, about: str) -> argparse.ArgumentParser:
    """Return the parser of a verb; `--root` was taken before."""
    return argparse.ArgumentParser(
        prog=f"rq {verb}",
        description=about,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="--root DIR: the directory of this RQ, instead of $RQ_ROOT or the checkout.",
    )


def at_least(low: int) -> Callable[[str], int]:
    """Return the type of an option: a whole number from `low` up."""

    def read(text: str) -> int:
        value = int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else low - 1
        if value < low:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number, {low} or more"
            )
        return value

    return read


def flag(into: argparse._ActionsContainer, name: str, about: str) -> None:
    """Add an option that is said or not."""
    into.add_argument(name, action="store_true", help=about)


def json_option(into: argparse.ArgumentParser) -> None:
    flag(into, "--json", "print JSON for programs")


def print_json(value: object) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False, default=str)
    print(visible.json_text(text))


def colour(text: str, name: str | None) -> str:
    """Return `text` coloured, when a person looks at it and wants colours."""
    if name is None or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"\033[{_COLOURS[name]}m{text}\033[0m"


def state(text: str) -> str:
    """Return the name of a state in its colour."""
    return colour(text, _COLOUR_OF.get(text.strip()))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their heads; columns of numbers stand at the right."""
    lines = [[plain(cell) for cell in row] for row in rows]
    columns = list(zip(*lines, strict=True)) if lines else [() for _ in head]
    widths = [
        max(len(title), *(len(cell) for cell in column), 0)
        for title, column in zip(head, columns, strict=True)
    ]
    right = [bool(column) and all(map(_is_number, column)) for column in columns]
    print(colour(_line(head, widths, right), "bold"))
    for cells in lines:
        print(_coloured(_line(cells, widths, right), cells))


def listed(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    none: str,
    for_programs: object = None,
) -> None:
    """Print rows under their heads, or say that there are `none`; `for_programs`: print
    this as JSON instead."""
    if for_programs is not None:
        print_json(for_programs)
    elif rows:
        table(head, rows)
    else:
        note(none)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = [
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    line = "  ".join(aligned).rstrip()
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(line)
    return line if len(line) <= room else line[: room - 1] + "…"


def _coloured(line: str, row: Sequence[str]) -> str:
    for cell in row:
        if cell in _COLOUR_OF:
            return line.replace(cell, state(cell), 1)
    return line


def _is_number(cell: str) -> bool:
    return cell.isdigit() or cell == "-"


def plain(value: object) -> str:
    """Return text that cannot move the cursor: what a script wrote stays in its line."""
    return "" if value is None else visible.line(str(value))


def moment(epoch: float | None) -> str:
    """Return a time as people read it, in their own zone, which is named."""
    if epoch is None:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(epoch))


def from_now(seconds: float) -> str:
    """Return `in 3 min` or `4 s ago`."""
    from rq.words.wording import duration

    if abs(seconds) < 1:
        return "now"
    text = duration(abs(seconds))
    return f"in {text}" if seconds > 0 else f"{text} ago"


def note(text: str) -> None:
    """Tell the person something that is not the answer, on stderr, behind what was said."""
    sys.stdout.flush()
    print(text, file=sys.stderr)


def confirm(question: str, *, yes: bool) -> bool:
    """Ask before something that cannot be undone; a program must say --yes."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInput(f"{question} No terminal to ask on: say --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
