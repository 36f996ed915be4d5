"""`rq owed`: copies and webhooks of ended messages that are still to be delivered."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import cast

from rq.cli import owner, place, term
from rq.errors import NoSuchMessage, RQError, Unreachable
from rq.layout import Root
from rq.replies import Owed

_WAYS = {
    "delivered": "it has arrived",
    "again": "it has not arrived: try for six more days",
    "drop": "give it up",
}


class OwedRow(Owed):
    """What a message of a queue still owes."""

    queue: str


def owed(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    if args.what == "ls":
        return _ls(root, args.queue, as_json=args.json)
    how = next(way for way in _WAYS if getattr(args, way))
    return _resolve(root, args.key, "dropped" if how == "drop" else how)


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "owed",
        "Copies and webhooks of ended messages that are still to be delivered. RQ tries\n"
        "each for six days; then it is in doubt, and a person says what became of it.",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list them, those in doubt first")
    listing.add_argument(
        "queue", nargs="?", metavar="QUEUE", help="of its messages only"
    )
    term.json_option(listing)
    resolve = kinds.add_parser(
        "resolve", help="say what became of one that is in doubt"
    )
    resolve.add_argument("key", metavar="KEY", help="as `rq owed ls` shows it")
    how = resolve.add_mutually_exclusive_group(required=True)
    for way, text in _WAYS.items():
        term.flag(how, f"--{way}", text)
    return parser


def _ls(root: Root, queue: str | None, *, as_json: bool) -> int:
    rows = _of_queue(root, queue) if queue is not None else _of_all(root)
    term.listed(
        ("KEY", "STATE", "MESSAGE", "TARGET", "SINCE", "WHY"),
        [_cells(row) for row in rows],
        "nothing is left to deliver: no copy, no webhook",
        rows if as_json else None,
    )
    return 0


def _cells(row: OwedRow) -> tuple[str, ...]:
    state = "in doubt" if row["in_doubt"] else "waiting"
    message = f"{row['queue']}/{row['msg_id']}"
    since = term.moment(float(row["since"]))
    return row["key"], state, message, row["target"], since, row["why"][:80]


def _of_queue(root: Root, queue: str) -> list[OwedRow]:
    """Return what is owed by the messages of a queue."""
    owed_here = cast(Sequence[Owed], owner.demand(root, queue, "owed"))
    return [{"queue": queue, **entry} for entry in owed_here]


def _of_all(root: Root) -> list[OwedRow]:
    """Return what is owed by the messages of all queues that answer, in doubt first."""
    place.demand_running(root)
    rows = []
    for name in place.queue_names(root):
        try:
            rows += _of_queue(root, name)
        except RQError as error:
            term.note(str(error))
    return sorted(rows, key=lambda row: not row["in_doubt"])


def _resolve(root: Root, key: str, how: str) -> int:
    place.demand_running(root)
    request = {"key": key, "as": how, "who": "rq owed"}
    answer = owner.demand(root, _queue_with(root, key), "resolve_owed", request)
    print(f"{key}: {answer}")
    return 0


def _queue_with(root: Root, key: str) -> str:
    """Return the queue that owes something under a key."""
    silent = []
    for name in place.queue_names(root):
        try:
            if owner.demand(root, name, "owed", {"key": key}):
                return name
        except RQError as error:
            silent.append(str(error))
    if silent:
        raise Unreachable(
            f"no queue that answers has {key:.80} to deliver; {'; '.join(silent)}"
        )
    raise NoSuchMessage(
        f"no copy or webhook {key:.80} is to be delivered; `rq owed ls` lists those that "
        "are"
    )
