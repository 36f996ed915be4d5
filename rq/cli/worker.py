"""`rq worker`: who works on messages of this RQ under leases."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import cast

from rq.cli import OK, owner, place, term
from rq.errors import RQError
from rq.layout import Root
from rq.replies import LeasesView, RemoteWorker, elsewhere


def worker(root: Root, words: list[str]) -> int:
    parser = term.parser("worker", "Workers that hold leases, or ask for some.")
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list them, with what each does")
    listing.add_argument("queue", nargs="?", metavar="QUEUE", help="(all queues)")
    term.json_option(listing)
    args = parser.parse_args(words)
    views = _views(root, args.queue)
    rows = [{"queue": queue, **row} for queue, view in views for row in _sorted(view)]
    if args.json:
        term.print_json(rows)
        return OK
    if args.queue is not None and views[0][1]["pull"] is None and not rows:
        term.note(f'{args.queue} leases no messages: its config.json has no "pull"')
        return OK
    heads = ("QUEUE", "WORKER", "BUSY", "SLOTS", "HEARD", "VERSION")
    none = "no worker has asked for leases in the last hour"
    term.listed(heads, [_cells(row) for row in rows], none)
    for _, view in views if args.queue is not None else ():
        if view["pull"] is not None:
            print(elsewhere.terms(view["pull"]))
    return OK


def _views(root: Root, queue: str | None) -> list[tuple[str, LeasesView]]:
    """Return what a queue, or each that answers, says of its leases and workers."""
    if queue is not None:
        return [(queue, _of(root, queue))]
    views: list[tuple[str, LeasesView]] = []
    for name in place.queue_names(root):
        try:
            views.append((name, _of(root, name)))
        except RQError as error:
            term.note(f"{name}: {error}")
    return views


def _of(root: Root, queue: str) -> LeasesView:
    return cast(LeasesView, owner.demand(root, queue, "leases", {"limit": 1}))


def _sorted(view: LeasesView) -> list[RemoteWorker]:
    """Return workers by their names, those that are gone last."""
    return sorted(view["workers"], key=lambda row: (not row["there"], row["by"]))


def _cells(row: Mapping[str, object]) -> tuple[object, ...]:
    heard = row["last_heard"]
    ago = "-" if heard is None else term.from_now(cast(float, heard) - time.time())
    slots = "-" if row["slots"] is None else row["slots"]
    return row["queue"], row["by"], row["busy"], slots, ago, row["version"] or "-"
