"""`rq check`: do journal, folders and counters agree?"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TypedDict, cast

from rq.cli import INTEGRITY, OK, owner, place, term
from rq.errors import Damaged, RQError, Unreachable
from rq.layout import Root
from rq.replies import Problem
from rq.rpc.broker import questions


class QueueProblem(Problem):
    """Something in a queue that is not as it should be."""

    queue: str


class _Checked(TypedDict):
    """The owner's answer to `check`."""

    problems: Sequence[Problem]


def check(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    named = [place.queue_dir(root, name).name for name in args.queues]
    queues = named or place.queue_names(root)
    problems: list[QueueProblem] = []
    running: list[str] = []
    with owner.Reader(root) as reader:
        for queue in queues:
            problems += _problems(reader, queue, fix=args.fix)
            running += [queue] if args.fix and reader.online(queue) else []
    if not named and (why := _broker_problem(root)) is not None:
        problems.append(_unreadable("", "damage", why, "broker"))
    if args.json:
        term.print_json(problems)
    else:
        _print(problems, len(queues))
    _tell_what_is_left(problems, running)
    return INTEGRITY if problems else OK


def _problems(reader: owner.Reader, queue: str, *, fix: bool) -> list[QueueProblem]:
    is_left = not fix and place.is_parked(reader.root, queue)
    reply = None if is_left else _reply(reader, queue, fix=fix)
    if reply is None:
        return _offline(reader.root, queue, fix=fix)
    if reply[0] != "ok":  # it stops, say: the others are checked all the same
        return [_unreadable(queue, "unchecked", str(reply[1]))]
    problems = cast(_Checked, reply[1])["problems"]
    return [{"queue": queue, **problem} for problem in problems]


def _reply(reader: owner.Reader, queue: str, *, fix: bool) -> owner.Reply | None:
    return reader.answer(queue, "check", {"fix": True} if fix else b"")


def _offline(root: Root, queue: str, *, fix: bool) -> list[QueueProblem]:
    from rq.spool import check as spool_check

    directory = root.queue(queue)
    if not directory.config.is_file():
        return [_unreadable(queue, "unreadable", "it has no config.json: no queue yet")]
    try:
        problems = spool_check.check(directory, fix=fix)
    except Damaged as error:
        return [_unreadable(queue, "damage", str(error))]
    except RQError as error:
        return [_unreadable(queue, "unreadable", str(error))]
    except OSError as error:  # the others are checked all the same
        return [_unreadable(queue, "unreadable", f"{error.filename}: {error.strerror}")]
    return [
        {
            "queue": queue,
            "kind": problem.kind,
            "subject": problem.subject,
            "text": problem.text,
        }
        for problem in problems
    ]


def _unreadable(queue: str, kind: str, text: str, subject: str = "") -> QueueProblem:
    return {"queue": queue, "kind": kind, "subject": subject or queue, "text": text}


def _print(problems: Sequence[QueueProblem], queues: int) -> None:
    if not problems:
        checked = term.number(queues, "queue")
        print(f"{checked} checked: journal, folders and counters agree")
        return
    term.table(
        ("QUEUE", "KIND", "WHAT", "TEXT"),
        [(row["queue"], row["kind"], row["subject"], row["text"]) for row in problems],
    )


def _tell_what_is_left(
    problems: Sequence[QueueProblem], running: Sequence[str]
) -> None:
    """Say of queues that run what their owners have not mended."""
    left = {row["queue"] for row in problems if row["kind"] != "mended"}
    if names := [queue for queue in running if queue in left]:
        term.note(
            f"{', '.join(names)}: a running queue counts again, and no more; stop RQ "
            "(`rq down`), then `rq check --fix` replays the journal onto the folders"
        )


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "check",
        "Check that the journal, the folders and the counters of queues agree, and that "
        "what the broker keeps is whole; exit status 9 if not.",
    )
    parser.add_argument("queues", nargs="*", metavar="QUEUE")
    term.flag(
        parser,
        "--fix",
        "repair what does not agree, from the journal, and start nothing; while RQ runs, "
        "only the counters",
    )
    term.json_option(parser)
    return parser


# ---- what the broker keeps


def _broker_problem(root: Root) -> str | None:
    """Return why what the broker keeps cannot be believed; None: it can, or there is
    none. A broker that runs has read all of it, and checks what it reads."""
    from rq.broker import check as broker_check

    if not os.path.lexists(root.broker) or _broker_runs(root):
        return None
    if not root.broker.is_dir():
        return f"{root.broker} is no directory, which a broker needs: move it away"
    try:
        broker_check.jobs_in(root.broker)
    except Damaged as error:
        return str(error)
    except OSError as error:
        return f"{root.broker} cannot be read: {error.strerror}"
    return None


def _broker_runs(root: Root) -> bool:
    try:
        questions.totals(root)
    except Unreachable:
        return False
    except RQError:  # it is there, and has no time
        return True
    return True
