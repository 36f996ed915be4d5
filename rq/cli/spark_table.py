"""`rq spark table`: the Delta tables that jobs write."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from rq import names, tables
from rq.cli import OK, place, term
from rq.errors import BadInput, RQError
from rq.layout import Root
from rq.words import moments

if TYPE_CHECKING:
    from rq.spark.table_list import Version

_VERSIONS = 20
_FIGURES = ("table", "rows", "bytes", "files", "version")


def table(root: Root, words: list[str]) -> int:
    """Run `rq spark table VERB`."""
    args = _parser().parse_args(words)
    from rq.spark import table_list, table_places

    table_list.demand()
    table = getattr(args, "table", "")
    queue = table.partition("/")[0] if table else args.queue
    of_queue = (
        table_places.rights_of(root, queue) if queue else contextlib.nullcontext()
    )
    with of_queue:
        result: int = args.function(root, args)
    return result


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "spark table", "Look at the Delta tables that jobs write, and look after them."
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for verb, (function, about) in _VERBS.items():
        into = verbs.add_parser(verb, help=about, description=about)
        into.set_defaults(function=function)
        if verb == "ls":
            into.add_argument("queue", nargs="?", metavar="QUEUE")
        elif verb != "held":
            into.add_argument("table", metavar="QUEUE/NAME")
        _OPTIONS.get(verb, _none)(into)
        if verb in _LISTS:
            term.json_option(into)
    return parser


def _none(_into: argparse.ArgumentParser) -> None:
    """Take no options of its own."""


def _of_show(into: argparse.ArgumentParser) -> None:
    limit = term.at_least(1)
    into.add_argument("--limit", type=limit, default=_VERSIONS, help="versions (20)")


def _of_held(into: argparse.ArgumentParser) -> None:
    into.add_argument("queue", nargs="?", metavar="QUEUE")
    into.add_argument("name", nargs="?", metavar="NAME", help="of a table")
    settled = into.add_mutually_exclusive_group()
    settled.add_argument(
        "--commit", metavar="KEY", help="write a batch that fits its tables again"
    )
    settled.add_argument(
        "--give-up", metavar="KEY", help="never write what a batch has for the table"
    )


def _of_restore(into: argparse.ArgumentParser) -> None:
    into.add_argument("version", metavar="VERSION", type=int)


def _of_vacuum(into: argparse.ArgumentParser) -> None:
    into.add_argument("--keep", default="7d", metavar="TIME", help="(7d, the least)")
    term.flag(into, "--dry-run", "only say what would be removed")


def ls(root: Root, args: argparse.Namespace) -> int:
    from rq.spark import table_list, table_places

    queue = place.queue_dir(root, args.queue).name if args.queue else None
    every, rows = list[object](), list[list[object]]()
    for name in tables.every(root, queue):
        try:
            with table_places.rights_of(root, name.queue):
                summary = table_list.summary(root, name)
        except RQError as error:  # it hides no others
            every.append({"table": name.text, "why": str(error)})
            rows.append([name.text, "", "", "", "", str(error)])
            continue
        every.append(summary)
        figures = [summary[figure] for figure in _FIGURES]  # type: ignore[literal-required]
        rows.append([*figures, term.moment(summary["written"])])
    head = ["TABLE", "ROWS", "BYTES", "FILES", "VERSION", "WRITTEN"]
    term.listed(head, rows, "no table was written", every if args.json else None)
    return OK


def show(root: Root, args: argparse.Namespace) -> int:
    from rq.spark import table_list

    lake = table_list.load(root, tables.name(args.table))
    versions = table_list.versions(lake, args.limit)
    rows = [
        [
            v["version"],
            term.moment(v["time"]),
            _what(v),
            v["messages"],
            " ".join(v["ids"][:3]),
        ]
        for v in versions
    ]
    head = ["VERSION", "WHEN", "WHAT", "MESSAGES", "THE FIRST OF THEM"]
    term.listed(head, rows, "it has no version", versions if args.json else None)
    return OK


def _what(version: Version) -> str:
    """Return what a version did, and whether that was to make a day again."""
    if not version["day"]:
        return version["operation"]
    by = f" by backfill {version['backfill']}" if version["backfill"] else ""
    return f"{version['operation']}: {version['day']} made again{by}"


def schema(root: Root, args: argparse.Namespace) -> int:
    from rq.spark import table_list

    columns = table_list.columns(table_list.load(root, tables.name(args.table)))
    rows = [[c["column"], c["type"], "yes" if c["by"] else ""] for c in columns]
    head = ["COLUMN", "TYPE", "PARTED BY"]
    term.listed(head, rows, "it has no column", columns if args.json else None)
    return OK


def held(root: Root, args: argparse.Namespace) -> int:
    from rq.spark import table_list

    if args.give_up or args.commit:
        return _settle(root, args)
    every = [
        entry
        for entry in table_list.held(root)
        if args.queue in (None, entry["queue"])
        and (args.name is None or args.name in entry["tables"])
    ]
    rows = [
        [
            h["queue"],
            h["key"],
            " ".join(h["tables"]),
            term.moment(h["time"]),
            " ".join(h["messages"][:3]),
            h["why"],
        ]
        for h in every
    ]
    head = ["QUEUE", "KEY", "TABLES", "DECIDED", "MESSAGES", "WHY"]
    term.listed(head, rows, "nothing is held", every if args.json else None)
    return OK


def _settle(root: Root, args: argparse.Namespace) -> int:
    """Commit a batch that is held, or give it up."""
    from rq.spark import held as held_batches

    if args.queue is None or (args.give_up and args.name is None):
        raise BadInput("say whose it is: QUEUE, and with --give-up NAME too")
    # It may be removed, and others wait for what it has decided.
    queue = names.queue_name(args.queue)
    if args.commit:
        settled = held_batches.commit(queue, args.commit)
    else:
        settled = held_batches.give_up(queue, args.name, args.give_up)
    for entry in settled:
        print(entry.text)
    return OK


def optimize(root: Root, args: argparse.Namespace) -> int:
    from rq.spark import table_care

    before, after = table_care.optimize(root, tables.name(args.table))
    print(f"{args.table}: {term.number(before, 'file')} before, {after:,} now")
    return OK


def restore(root: Root, args: argparse.Namespace) -> int:
    from rq.spark import table_care

    version = table_care.restore(root, tables.name(args.table), args.version)
    print(f"{args.table}: version {version} is what {args.version} was")
    return OK


def vacuum(root: Root, args: argparse.Namespace) -> int:
    from rq.spark import table_care

    keep = moments.duration(args.keep)
    name = tables.name(args.table)
    removed = table_care.vacuum(root, name, keep, args.dry_run)
    what = "would be removed" if args.dry_run else "removed"
    print(f"{args.table}: {term.number(len(removed), 'file')} {what}")
    return OK


_LISTS = ("ls", "show", "schema", "held")
_OPTIONS = {
    "held": _of_held,
    "show": _of_show,
    "restore": _of_restore,
    "vacuum": _of_vacuum,
}
_VERBS = {
    "ls": (ls, "list tables, with their rows, bytes and last write"),
    "show": (show, "list the versions of a table, and the messages that made them"),
    "schema": (schema, "list the columns of a table"),
    "held": (
        held,
        "list batches that are decided and not in their tables, commit or give up one",
    ),
    "optimize": (optimize, "join the small files of a table"),
    "restore": (restore, "make a table what it was in a version"),
    "vacuum": (vacuum, "remove files that no version of the last days names"),
}
