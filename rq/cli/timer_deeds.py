"""`rq timer next`, `run`, `pause` and `resume`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

from rq import client
from rq.cli import place, term
from rq.errors import Unreachable
from rq.layout import Root
from rq.nesting import Json
from rq.replies import NextFire, TimerRow
from rq.wording import moment

_TIMEOUT = 60.0  # seconds


def upcoming(root: Root, count: int, names: list[str], *, as_json: bool) -> None:
    """Print the next fires of all timers, or of some."""
    request: Json = {"count": count, "names": names}
    rows = cast(Sequence[NextFire], _ask(root, "next", request))
    if as_json:
        term.print_json(rows)
        return
    now = time.time()
    term.table(
        ("TIMER", "FIRES", "WHERE IT IS", "IN UTC"),
        [
            (
                row["name"],
                term.from_now(row["at"] - now),
                row["local"],
                moment(row["at"]),
            )
            for row in rows
        ],
    )


def run(root: Root, names: list[str]) -> None:
    """Send a message of each timer now."""
    for name in names:
        print(f"timer {term.plain(name)}: sent {_ask(root, 'run', name)}")


def pause(root: Root, names: list[str]) -> None:
    for name in names:
        _ask(root, "pause", name)
        print(f"timer {term.plain(name)} is paused")


def resume(root: Root, names: list[str]) -> None:
    for name in names:
        _say_when(name, cast(TimerRow, _ask(root, "resume", name)))


def accept(root: Root, name: str) -> None:
    """Let a timer fire that the Ruby RQ left."""
    row = cast(TimerRow | None, _ask(root, "accept", name))
    if row is None:
        print(f"timer {term.plain(name)} goes on once RQ can read its file")
    else:
        _say_when(name, row)


def _say_when(name: str, row: TimerRow) -> None:
    due = row.get("due")
    when = "" if due is None else f", and fires {term.from_now(due - time.time())}"
    print(f"timer {term.plain(name)} goes on{when}")


def _ask(root: Root, command: str, about: Json) -> Json:
    try:
        reply = client.ask_timers(root.timers_socket, command, about, _TIMEOUT)
    except Unreachable:
        place.demand_running(root)
        raise
    return cast(Json, client.demanded(reply))
