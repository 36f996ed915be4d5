"""`rq check`: do journal, folders and counters agree?"""

from __future__ import annotations

import argparse
from typing import Any

from rq.cli import INTEGRITY, OK, owner, place, term
from rq.errors import Damaged, Refused, RQError
from rq.layout import Root


def check(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    queues = [place.queue_dir(root, one).name for one in args.queues]
    found: list[dict[str, Any]] = []
    with owner.Reader(root) as reader:
        for name in queues or place.queue_names(root):
            found += _problems(reader, name, fix=args.fix)
    if args.json:
        term.print_json(found)
    else:
        _print(found, len(queues or place.queue_names(root)))
    return INTEGRITY if found else OK


def _problems(reader: owner.Reader, name: str, *, fix: bool) -> list[dict[str, Any]]:
    reply = reader.answer(name, "check")
    if reply is None:
        return _offline(reader.root, name, fix=fix)
    if fix:
        raise Refused(
            f"{name} is running and mends itself: --fix is for a stopped RQ (`rq down`)"
        )
    if reply[0] != "ok":  # it stops, say: the others are checked all the same
        return [_unreadable(name, "unchecked", str(reply[1]))]
    return [{"queue": name, **one} for one in reply[1]["problems"]]


def _offline(root: Root, name: str, *, fix: bool) -> list[dict[str, Any]]:
    from rq.spool import check as spool_check

    try:
        problems = spool_check.check(root.queue(name), fix=fix)
    except Damaged as error:
        return [_unreadable(name, "damage", error)]
    except RQError as error:
        return [_unreadable(name, "unreadable", error)]
    return [{"queue": name, **one.to_json()} for one in problems]


def _unreadable(name: str, kind: str, error: RQError | str) -> dict[str, Any]:
    return {"queue": name, "kind": kind, "subject": name, "text": str(error)}


def _print(found: list[dict[str, Any]], queues: int) -> None:
    if not found:
        print(f"{queues} queues checked: journal, folders and counters agree")
        return
    term.table(
        ("QUEUE", "KIND", "WHAT", "TEXT"),
        [
            (
                one["queue"],
                one["kind"],
                one["subject"],
                one["text"],
            )
            for one in found
        ],
    )


def _parser() -> argparse.ArgumentParser:
    made = term.parser(
        "check",
        "Prove that journal, folders and counters agree: exit 9 if they do not.",
    )
    made.add_argument("queues", nargs="*", metavar="QUEUE")
    made.add_argument(
        "--fix",
        action="store_true",
        help="with RQ stopped: replay the journal and mend; starts nothing",
    )
    term.json_option(made)
    return made
