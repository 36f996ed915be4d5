"""`rq broker queues|peek|show|pause|clients`: what the broker holds, and for whom."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from rq import broker_client
from rq.cli import OK, place, term
from rq.errors import BadInput, NoSuchMessage
from rq.layout import Root
from rq.resp import Status, Value

VERBS = ("queues", "peek", "show", "pause", "clients")
_SHORT = 60  # characters of a body in a table


def options(kinds: term.Verbs) -> None:
    """Add the verbs and what they take."""
    term.json_option(kinds.add_parser("queues", help="list its queues"))
    peek = kinds.add_parser("peek", help="show the jobs that come next from a queue")
    peek.add_argument("queue", metavar="QUEUE")
    peek.add_argument("-n", type=term.at_least(1), default=10, help="how many (10)")
    term.json_option(peek)
    show = kinds.add_parser("show", help="tell of a job")
    show.add_argument("id", metavar="ID")
    term.json_option(show)
    pause = kinds.add_parser("pause", help="pause a queue of jobs, or let it go on")
    pause.add_argument("queue", metavar="QUEUE")
    pause.add_argument("how", choices=["in", "out", "all", "none"])
    term.json_option(kinds.add_parser("clients", help="list who is connected"))


def show(root: Root, args: argparse.Namespace) -> int:
    """Do what a verb says."""
    match args.what:
        case "queues":
            return _queues(root, as_json=args.json)
        case "clients":
            return _clients(root, as_json=args.json)
        case "peek":
            return _peek(root, args)
        case "show":
            return _show(root, args)
    answer = broker_client.ask(root, "PAUSE", os.fsencode(args.queue), args.how)
    print(f"{args.queue} is paused: {_text(answer)}")
    return OK


def _queues(root: Root, *, as_json: bool) -> int:
    rows = broker_client.queues(root)
    if as_json:
        term.print_json([row.to_json() for row in rows])
        return OK
    heads = ("QUEUE", "DIALECT", "WAIT", "OUT", "CONSUMERS", "OLDEST", "PAUSED")
    if not rows:
        place.note("the broker holds no queue")
        return OK
    term.table(
        heads,
        [
            (
                row.name,
                row.dialect,
                row.waits,
                row.handed_out,
                row.consumers,
                f"{row.oldest} s" if row.oldest else "",
                "" if row.paused == "none" else row.paused,
            )
            for row in rows
        ],
    )
    return OK


def _clients(root: Root, *, as_json: bool) -> int:
    rows = broker_client.clients(root)
    if as_json:
        term.print_json([row.to_json() for row in rows])
        return OK
    term.table(
        ("CLIENT", "NAME", "FROM", "FOR", "LAST"),
        [
            (row.number, row.name, row.address, f"{row.seconds} s", _last(row))
            for row in rows
        ],
    )
    return OK


def _last(row: broker_client.ClientRow) -> str:
    return f"{row.last}, waits" if row.waits else row.last


def _peek(root: Root, args: argparse.Namespace) -> int:
    queue = os.fsencode(args.queue)
    jobs = broker_client.ask(root, "QPEEK", queue, str(args.n))
    rows = [list(map(_text, job)) for job in jobs] if isinstance(jobs, list) else []
    if args.json:
        term.print_json([{"id": row[1], "body": row[2]} for row in rows])
    elif rows:
        term.table(("ID", "BODY"), [(row[1], row[2][:_SHORT]) for row in rows])
    else:
        place.note(f"no job waits in {args.queue}")
    return OK


def _show(root: Root, args: argparse.Namespace) -> int:
    answer = broker_client.ask(root, "SHOW", args.id)
    if not isinstance(answer, list):
        raise NoSuchMessage(
            f"the broker has no job {args.id}: it is done, or never was"
        )
    facts = dict(zip(map(_text, answer[::2]), answer[1::2], strict=True))
    plain = {name: _readable(value) for name, value in facts.items()}
    if args.json:
        term.print_json(plain)
    else:
        for name, value in plain.items():
            print(f"{name:<24}{value}")
    return OK


def _readable(value: Value) -> object:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_readable(item) for item in value]
    return broker_client.readable(value) if isinstance(value, bytes) else value


def _text(value: Value) -> str:
    if isinstance(value, Status):
        return value.text
    if isinstance(value, bytes):
        return broker_client.readable(value)
    raise BadInput(f"the broker answered {value!r:.60}")
