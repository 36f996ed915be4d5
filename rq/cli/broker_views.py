"""`rq broker queues|peek|show|clients|nodes` and what changes jobs: what the broker holds,
and for whom."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from rq.cli import FAILED, OK, term
from rq.config import broker as config
from rq.errors import BadInput, NoSuchMessage, Unreachable
from rq.layout import Root
from rq.resp import Status, Value
from rq.rpc.broker import answers, questions
from rq.rpc.broker.addresses import readable
from rq.rpc.broker.questions import ask
from rq.rpc.broker.rows import ClientRow, CopyRow, Job, NodeRow
from rq.words.wording import duration, size

_SHORT = 60  # characters of a name or a body in a table
_NOT_READ = {True: "(in a file of its own)", False: ""}
_MOST = 1000  # jobs that a table shows
_NODES_OF_A_JOB = ("nodes-delivered", "nodes-confirmed")  # of SHOW
_HEADS = (
    *("QUEUE", "DIALECT", "WAIT", "OUT", "IN/S", "OUT/S"),
    *("CONSUMERS", "OLDEST", "PAUSED"),
)
_DONE = {
    "ack": "acknowledged",
    "delete": "deleted",
    "enqueue": "enqueued",
    "dequeue": "dequeued",
}
VERBS = ("queues", "peek", "show", "pause", "clients", "nodes", *questions.DEEDS)


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
    pause.add_argument("how", choices=questions.PAUSES)
    for verb, about in (
        ("ack", "acknowledge jobs: they count as done"),
        ("delete", "remove jobs, whoever works on them"),
        ("enqueue", "let jobs come into their queues now"),
        ("dequeue", "take jobs out of their queues until they are due again"),
    ):
        deed = kinds.add_parser(verb, help=about)
        deed.add_argument("ids", nargs="+", metavar="ID")
    term.json_option(kinds.add_parser("clients", help="list who is connected"))
    term.json_option(kinds.add_parser("nodes", help="list the nodes it knows"))


def show(root: Root, args: argparse.Namespace) -> int:
    """Do what a verb says. Unreachable: the broker is off, or does not answer."""
    if not config.read(root.broker_config).enabled:
        raise Unreachable("the broker is off: `rq broker enable` starts it")
    match args.what:
        case "queues":
            return _queues(root, as_json=args.json)
        case "clients":
            return _clients(root, as_json=args.json)
        case "nodes":
            return list_nodes(root, as_json=args.json)
        case "peek":
            return _peek(root, args)
        case "show":
            return _show(root, args)
        case "pause":
            how = questions.pause(root, os.fsencode(args.queue), args.how)
            print(f"{_cut(term.plain(args.queue))} is paused: {how}")
            return OK
    return _change(root, args.what, args.ids)


def _queues(root: Root, *, as_json: bool) -> int:
    rows = questions.queues(root)
    term.listed(
        _HEADS,
        [
            (
                _cut(row.name),
                row.dialect,
                row.waits,
                row.handed_out,
                row.in_rate,
                row.out_rate,
                row.consumers,
                f"{row.oldest} s" if row.oldest else "",
                "" if row.paused == "none" else row.paused,
            )
            for row in rows
        ],
        "the broker holds no queue",
        [row.to_json() for row in rows] if as_json else None,
    )
    return OK


def _cut(text: str) -> str:
    """Return a text as a table has room for it.

    >>> _cut("x" * 61)[-2:], len(_cut("x" * 61)), len(_cut("x" * 60))
    ('x…', 60, 60)
    """
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def _clients(root: Root, *, as_json: bool) -> int:
    rows = questions.clients(root)
    term.listed(
        ("CLIENT", "NAME", "FROM", "FOR", "LAST"),
        [
            (row.number, _cut(row.name), row.address, f"{row.seconds} s", _last(row))
            for row in rows
        ],
        "nobody is connected",
        [row.to_json() for row in rows] if as_json else None,
    )
    return OK


def _last(row: ClientRow) -> str:
    return f"{row.last}, waits" if row.waits else row.last


def list_nodes(root: Root, *, as_json: bool) -> int:
    """Print the nodes that it knows, and how the links to them are."""
    rows = questions.nodes(root)
    if as_json:
        term.print_json([row.to_json() for row in rows])
        return OK
    term.table(
        ("NODE", "ADDRESS", "FLAGS", "LINK", "LAG", "WAITING", "LOST"),
        [
            (
                row.id[:8],
                row.address,
                ",".join(row.flags),
                _link(row),
                f"{row.lag * 1000:.1f} ms" if row.lag > 0 else "",
                size(row.waiting_bytes) if row.waiting_bytes else "",
                row.lost or "",
            )
            for row in rows
        ],
    )
    return OK


def _link(row: NodeRow) -> str:
    """Return how the link to a node is, or for how long it does not answer."""
    why = f": {row.why}" if row.why else ""
    if row.silent >= 1:
        return f"silent for {duration(row.silent)}{why}"
    if not row.linked:
        return f"down{why}"
    return "up" if row.linked_back else "up, not back"


def _peek(root: Root, args: argparse.Namespace) -> int:
    queue = os.fsencode(args.queue)
    if args.json:
        jobs = ask(root, "QPEEK", queue, str(args.n))
        rows = [list(map(_text, job)) for job in jobs] if isinstance(jobs, list) else []
        term.print_json([{"id": row[1], "body": row[2]} for row in rows])
        return OK
    count = str(min(args.n, _MOST))
    rows_shown = answers.jobs_in(ask(root, "BROKER", "PEEK", "disque", queue, count))
    term.listed(
        ("ID", "BYTES", "BODY"),
        [
            (row.id, row.body_bytes, _cut(row.body) or _NOT_READ[row.body_bytes > 0])
            for row in rows_shown
        ],
        f"no job waits in {_cut(term.plain(args.queue))}",
    )
    return OK


def _show(root: Root, args: argparse.Namespace) -> int:
    answer = ask(root, "SHOW", args.id)
    if not isinstance(answer, list):
        raise NoSuchMessage(
            f"the broker has no job {args.id:.80}: it is done, or never was"
        )
    facts = dict(zip(map(_text, answer[::2]), answer[1::2], strict=True))
    plain = {name: _readable(value) for name, value in facts.items()}
    if args.json:
        term.print_json(plain)
    else:
        for name, value in plain.items():
            if name not in _NODES_OF_A_JOB:
                print(f"{name:<24}{term.plain(value)}")
        _show_copies(questions.job(root, args.id))
    return OK


def _show_copies(job: Job) -> None:
    """Print which nodes may have a job."""
    print()
    rows = [(row.id[:8], row.address, *_copy(job, row)) for row in job.copies]
    term.table(("COPY AT", "ADDRESS", "STATE", "NODE"), rows)


def _copy(job: Job, row: CopyRow) -> tuple[str, str]:
    """Return what is known of a copy, and of its node."""
    return answers.copy_state(job, row), ",".join(row.flags)


def _change(root: Root, deed: str, ids: Sequence[str]) -> int:
    """Do something with jobs; FAILED when it was done with none."""
    done = questions.change(root, deed, ids)
    print(f"{term.number(done, 'job')} {_DONE[deed]}")
    return OK if done else FAILED


def _readable(value: Value) -> object:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_readable(item) for item in value]
    return readable(value) if isinstance(value, bytes) else value


def _text(value: Value) -> str:
    if isinstance(value, Status):
        return value.text
    if isinstance(value, bytes):
        return readable(value)
    raise BadInput(f"the broker answered {value!r:.60}")
