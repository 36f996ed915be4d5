"""`rq txn`: the transactions that are open, and their end by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rq.cli import owner, place, term
from rq.layout import Root
from rq.replies import TransactionView


def txn(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "txn",
        "Transactions: messages that are accepted all at once, when whoever sends them\n"
        "commits. List those that are still open, or abort one.",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list the transactions that are open")
    listing.add_argument("queue", metavar="QUEUE")
    term.json_option(listing)
    abort = kinds.add_parser("abort", help="discard one with all its messages")
    abort.add_argument("queue", metavar="QUEUE")
    abort.add_argument("txn", nargs="+", metavar="ID")
    args = parser.parse_args(words)
    if args.what == "ls":
        return _ls(root, args.queue, as_json=args.json)
    for txn_id in args.txn:
        owner.demand(root, args.queue, "abort_txn", {"txn": txn_id})
        print(f"{txn_id} aborted: none of its messages will run")
    return 0


def _ls(root: Root, queue: str, *, as_json: bool) -> int:
    views = cast(Sequence[TransactionView], owner.demand(root, queue, "list_txns"))
    if as_json:
        term.print_json(views)
    elif views:
        term.table(("ID", "MESSAGES", "UNTIL", "KEY"), [_row(view) for view in views])
    else:
        place.note(f"no transaction of {queue} is open")
    return 0


def _row(view: TransactionView) -> tuple[str, ...]:
    until = term.moment(view["until"])
    return view["txn"], str(view["messages"]), until, view.get("key", "")
