"""`rq worker`: who works on messages of this RQ under leases."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import cast

from rq.cli import OK, owner, place, term
from rq.errors import RQError
from rq.layout import Root
from rq.nesting import Json

Row = Mapping[str, Json]


def worker(root: Root, words: list[str]) -> int:
    parser = term.parser("worker", "Workers that hold leases, or ask for some.")
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list them, with what each does")
    listing.add_argument("queue", nargs="?", metavar="QUEUE", help="(all queues)")
    term.json_option(listing)
    args = parser.parse_args(words)
    rows = _rows(root, args.queue)
    if args.json:
        term.print_json(rows)
    elif rows:
        heads = ("QUEUE", "WORKER", "SLOTS", "BUSY", "HEARD", "VERSION")
        term.table(heads, [_cells(row) for row in rows])
    else:
        place.note("no worker has asked for leases in the last hour")
    return OK


def _rows(root: Root, queue: str | None) -> list[Row]:
    """Return a row for each worker of a queue, or of all that answer."""
    if queue is not None:
        return _of(root, queue)
    rows: list[Row] = []
    for name in place.queue_names(root):
        try:
            rows += _of(root, name)
        except RQError as error:
            place.note(f"{name}: {error}")
    return rows


def _of(root: Root, queue: str) -> list[Row]:
    reply = cast("Row", owner.demand(root, queue, "leases", {"limit": 1}))
    workers = cast("Sequence[Row]", reply["workers"])
    return [{"queue": queue, **row} for row in workers]


def _cells(row: Row) -> tuple[Json, ...]:
    heard = cast(float, row["last_heard"]) - time.time()
    cells = [row[name] for name in ("queue", "by", "slots", "busy")]
    slots = "-" if cells[2] is None else cells[2]
    return (cells[0], cells[1], slots, cells[3], term.from_now(heard), row["version"])
