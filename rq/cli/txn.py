"""`rq txn`: the transactions that are open, and their end by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rq.cli import owner, term
from rq.layout import Root
from rq.replies import RowsView, TransactionView


def txn(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "txn",
        "Transactions: messages that are accepted all at once, when whoever sends them\n"
        "commits. List those that are still open, abort one, or discard what of a\n"
        "committed one waits as rows.",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser(
        "ls", help="list the transactions that are open, or of which rows wait"
    )
    listing.add_argument("queue", metavar="QUEUE")
    term.json_option(listing)
    abort = kinds.add_parser("abort", help="discard one with all its messages")
    abort.add_argument("queue", metavar="QUEUE")
    abort.add_argument("txn", nargs="+", metavar="ID")
    drop = kinds.add_parser(
        "drop", help="discard the rows of a committed one that are no messages yet"
    )
    drop.add_argument("queue", metavar="QUEUE")
    drop.add_argument("txn", nargs="+", metavar="ID")
    args = parser.parse_args(words)
    if args.what == "ls":
        return _ls(root, args.queue, as_json=args.json)
    if args.what == "drop":
        return _drop(root, args.queue, args.txn)
    for txn_id in args.txn:
        owner.demand(root, args.queue, "abort_txn", {"txn": txn_id})
        print(f"{txn_id} aborted: none of its messages will run")
    return 0


def _drop(root: Root, queue: str, txns: Sequence[str]) -> int:
    for txn_id in txns:
        reply = owner.demand(root, queue, "drop_rows", {"txn": txn_id})
        number = cast(RowsView, reply)["messages"]
        print(f"{txn_id}: {number:,} rows discarded; what is a message already stays")
    return 0


def _ls(root: Root, queue: str, *, as_json: bool) -> int:
    views = [
        view
        for choice in ({"rows": True}, {})
        for view in cast(
            Sequence[TransactionView], owner.demand(root, queue, "list_txns", choice)
        )
    ]
    term.listed(
        ("ID", "STATE", "MESSAGES", "ROWS", "UNTIL", "KEY"),
        [_row(view) for view in views],
        f"no transaction of {queue} is open, and no rows wait",
        views if as_json else None,
    )
    return 0


def _row(view: TransactionView) -> tuple[str, ...]:
    until = term.moment(view["until"])
    numbers = f"{view['messages']:,}", f"{view.get('rows', 0):,}"
    return view["txn"], view["state"], *numbers, until, view.get("key", "")
