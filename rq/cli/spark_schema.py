"""`rq spark schema`: the columns that were inferred of files, and are kept for their queue."""

from __future__ import annotations

import argparse

from rq.cli import OK, place, term
from rq.layout import Root


def schema(root: Root, words: list[str]) -> int:
    """Run `rq spark schema VERB`."""
    args = _parser().parse_args(words)
    result: int = args.function(root, args)
    return result


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "spark schema", "Look at the columns that are kept for a queue, or forget them."
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for verb, (function, about) in _VERBS.items():
        into = verbs.add_parser(verb, help=about, description=about)
        into.set_defaults(function=function)
        into.add_argument("queue", metavar="QUEUE", nargs="?" if verb == "ls" else None)
        if verb != "ls":
            nargs = "?" if verb == "forget" else None
            into.add_argument("name", metavar="NAME", nargs=nargs)
        if verb != "forget":
            term.json_option(into)
    return parser


def ls(root: Root, args: argparse.Namespace) -> int:
    from rq.spark import kept_schemas

    queue = place.queue_dir(root, args.queue).name if args.queue else None
    every = kept_schemas.every(root, queue)
    rows = [[k["queue"], k["name"], k["file"], k["msg_id"], k["schema"]] for k in every]
    head = ["QUEUE", "NAME", "FIRST FILE", "OF MESSAGE", "COLUMNS"]
    term.listed(head, rows, "no columns are kept", every if args.json else None)
    return OK


def show(root: Root, args: argparse.Namespace) -> int:
    from rq.spark import kept_schemas

    queue = place.queue_dir(root, args.queue).name
    columns = kept_schemas.columns(root, queue, args.name)
    every = [{"column": column.name, "type": column.kind} for column in columns]
    rows = [list(row.values()) for row in every]
    term.listed(["COLUMN", "TYPE"], rows, "none", every if args.json else None)
    return OK


def forget(root: Root, args: argparse.Namespace) -> int:
    """Forget what is kept under a name, or all of a queue: its next file is the first."""
    from rq.spark import kept_schemas

    queue = place.queue_dir(root, args.queue).name
    gone = kept_schemas.forget(root, queue, args.name)
    for name in gone:
        print(f"{queue}: {name} is forgotten: the next file says the columns")
    if not gone:
        term.note(f"no columns are kept for {queue}")
    return OK


_VERBS = {
    "ls": (ls, "list what is kept for all queues, or for one"),
    "show": (show, "list the columns that are kept under a name"),
    "forget": (forget, "forget a name, or all of a queue; the next file says them"),
}
