"""Verbs that change messages: run, retry, cancel, delete, ack."""

from __future__ import annotations

import argparse
import os
import pwd
from collections.abc import Callable, Sequence
from typing import Any

from rq.cli import OK, ids, owner, place, term
from rq.errors import RQError, WrongState
from rq.layout import Root
from rq.states import State

_Change = Callable[[Root, str, str], str]


def run(root: Root, words: list[str]) -> int:
    """Start a waiting message now: it does not wait for its due time."""
    args = _parser("run", "Run waiting messages now, before they are due.", words)
    return _each(
        root,
        args,
        lambda root, queue, msg_id: _say(
            owner.demand(root, queue, "run_message", _asked(msg_id)), "runs next"
        ),
    )


def retry(root: Root, words: list[str]) -> int:
    """Send failed messages round again, under the same id."""
    args = _parser("retry", "Send failed messages round again (same id).", words)
    return _each(root, args, _retry)


def _retry(root: Root, queue: str, msg_id: str) -> str:
    owner.demand(root, queue, "retry_message", _asked(msg_id))
    return "sent round again"


def cancel(root: Root, words: list[str]) -> int:
    """Take waiting messages out (asks), end running ones."""
    made = term.parser(
        "cancel",
        "A waiting message is removed, after asking; a running one is ended and "
        "goes to err.",
    )
    made.add_argument("ids", nargs="+", metavar="ID")
    made.add_argument("--yes", "-y", action="store_true", help="do not ask")
    made.add_argument(
        "--batch",
        action="store_true",
        help="end the batch that it runs in: all of it goes to err",
    )
    args = made.parse_args(words)
    if args.batch:
        return _each(root, args, _cancel_batch)
    return _each(root, args, lambda *target: _cancel(*target, yes=args.yes))


def _cancel_batch(root: Root, queue: str, msg_id: str) -> str:
    owner.demand(root, queue, "cancel_batch", _asked(msg_id))
    return "is being ended with its batch; all of it goes to err"


def _cancel(root: Root, queue: str, msg_id: str, *, yes: bool) -> str:
    with owner.Reader(root) as reader:
        state = reader.state(queue, msg_id)
    if state is State.RUN:
        owner.demand(root, queue, "cancel_message", _asked(msg_id))
        return "is being ended; it goes to err"
    if state not in (State.QUE, State.PREP):
        raise WrongState(
            f"{queue}/{msg_id} is in {state}: only what waits or runs can be cancelled"
        )
    return _remove(root, queue, msg_id, state, yes=yes)


def delete(root: Root, words: list[str]) -> int:
    """Remove messages for good, with their log and attachments (asks)."""
    args = _parser(
        "delete",
        "Remove messages for good, with their logs and attachments, after asking.",
        words,
        asks=True,
    )
    return _each(root, args, lambda *target: _delete(*target, yes=args.yes))


def _delete(root: Root, queue: str, msg_id: str, *, yes: bool) -> str:
    with owner.Reader(root) as reader:
        state = reader.state(queue, msg_id)
    if state is State.RUN:
        raise WrongState(f"{queue}/{msg_id} is running: `rq cancel` it first")
    return _remove(root, queue, msg_id, state, yes=yes)


def _remove(
    root: Root, queue: str, msg_id: str, state: State | None, *, yes: bool
) -> str:
    question = f"Remove {queue}/{msg_id} (in {state}) for good?"
    if not term.confirm(question, yes=yes):
        return "kept"
    owner.demand(root, queue, "delete_message", _asked(msg_id))
    return "removed"


def ack(root: Root, words: list[str]) -> int:
    """Mark failed messages as seen."""
    made = term.parser("ack", "Mark failed messages as seen; they stay in err.")
    made.add_argument("ids", nargs="*", metavar="ID")
    made.add_argument("--all", metavar="QUEUE", help="all of a queue")
    args = made.parse_args(words)
    if bool(args.ids) == bool(args.all):
        made.error("say which: ID..., or --all QUEUE")
    if args.all:
        count = owner.demand(root, args.all, "ack_errs", {})
        print(f"{args.all}: {count} marked as seen")
        return OK
    return _each(
        root,
        args,
        lambda root, queue, msg_id: _say(
            owner.demand(root, queue, "ack_errs", _asked(msg_id)), "marked as seen"
        ),
    )


def _say(_: Any, text: str) -> str:
    return text


def _asked(msg_id: str) -> dict[str, str]:
    return {"msg_id": msg_id, "who": who()}


def who() -> str:
    """Return the name of the person who asks, seen through sudo."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    behind = os.environ.get("SUDO_USER")
    return f"{behind} ({name})" if behind and behind != name else name


def _each(root: Root, args: argparse.Namespace, act: _Change) -> int:
    """Do it to all, tell of each; one failure does not keep the others from it."""
    place.demand_running(root)
    with owner.Reader(root) as reader:
        targets = [ids.resolve(reader, one) for one in args.ids]
    if len(targets) == 1:
        queue, msg_id = targets[0]
        print(f"{queue}/{msg_id} {act(root, queue, msg_id)}")
        return OK
    return max(_one(root, target, act) for target in targets)


def _one(root: Root, target: tuple[str, str], act: _Change) -> int:
    from rq.cli import EXIT_OF, FAILED, complain

    queue, msg_id = target
    try:
        print(f"{queue}/{msg_id} {act(root, queue, msg_id)}")
    except RQError as error:
        said = str(error)
        complain(said if msg_id in said else f"{queue}/{msg_id}: {said}")
        return EXIT_OF.get(type(error), FAILED)
    return OK


def _parser(
    verb: str, about: str, words: Sequence[str], *, asks: bool = False
) -> argparse.Namespace:
    made = term.parser(verb, about)
    made.add_argument("ids", nargs="+", metavar="ID")
    if asks:
        made.add_argument("--yes", "-y", action="store_true", help="do not ask")
    return made.parse_args(words)
