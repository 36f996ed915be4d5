"""`rq txn`: the transactions that are open, and their end by hand."""

from __future__ import annotations

from typing import Any

from rq.cli import owner, place, term
from rq.layout import Root


def txn(root: Root, words: list[str]) -> int:
    made = term.parser("txn", "Messages that are prepared to be accepted together.")
    kinds = made.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list the transactions that are open")
    listing.add_argument("queue", metavar="QUEUE")
    term.json_option(listing)
    abort = kinds.add_parser("abort", help="discard one with all its messages")
    abort.add_argument("queue", metavar="QUEUE")
    abort.add_argument("txn", nargs="+", metavar="ID")
    args = made.parse_args(words)
    if args.what == "ls":
        return _ls(root, args.queue, as_json=args.json)
    for one in args.txn:
        owner.demand(root, args.queue, "abort_txn", {"txn": one})
        print(f"{one} aborted")
    return 0


def _ls(root: Root, queue: str, *, as_json: bool) -> int:
    found: list[dict[str, Any]] = owner.demand(root, queue, "list_txns")
    if as_json:
        term.print_json(found)
    elif found:
        term.table(("ID", "MESSAGES", "UNTIL", "KEY"), [_row(one) for one in found])
    else:
        place.note(f"no transaction of {queue} is open")
    return 0


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    until = term.moment(one["until"])
    return one["txn"], str(one["messages"]), until, one.get("key", "")
