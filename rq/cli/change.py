"""Verbs that change messages: run, retry, cancel, delete, ack."""

from __future__ import annotations

import argparse
import os
import pwd
from collections.abc import Callable, Sequence

from rq.cli import OK, bulk, ids, owner, place, term
from rq.errors import RQError, WrongState
from rq.layout import Root
from rq.states import State

Change = Callable[[Root, str, str], str]  # queue, msg_id -> what became of it

# How a message is that cannot be changed as a person wants it.
_IS = {
    State.PREP: "is being prepared",
    State.QUE: "waits to run",
    State.RUN: "is running",
    State.DONE: "has succeeded",
    State.RELAYED: "was handed over to another queue or host",
    State.ERR: "has failed",
    State.DISMISSED: "has failed",
}


def run(root: Root, words: list[str]) -> int:
    """Start a waiting message now: it does not wait for its due time."""
    parser = term.parser("run", "Run waiting messages now, before they are due.")
    parser.add_argument("ids", nargs="+", metavar="ID", help=term.ID)
    return each(root, parser.parse_args(words), _run)


def _run(root: Root, queue: str, msg_id: str) -> str:
    demand_state(root, (queue, msg_id), (State.QUE,), "messages that wait can be run")
    owner.demand(root, queue, "run_message", request(msg_id))
    return "runs next"


def retry(root: Root, words: list[str]) -> int:
    """Run messages in err again, under the same id."""
    parser = parser_of_many(
        "retry",
        "Run messages again that failed or were cancelled: the same id, and the retries "
        "count from 0.",
        State.ERR,
    )
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    args = parser.parse_args(words)
    return each_or_all(root, parser, args, _retry)


def _retry(root: Root, queue: str, msg_id: str) -> str:
    states = (State.ERR, State.DISMISSED)
    demand_state(root, (queue, msg_id), states, "messages in err can be run again")
    owner.demand(root, queue, "retry_message", request(msg_id))
    return "will run again"


def demand_state(
    root: Root, target: tuple[str, str], states: Sequence[State], only: str
) -> None:
    """WrongState, in words, unless a message is in one of `states`."""
    queue, msg_id = target
    with owner.Reader(root) as reader:
        state = reader.state(queue, msg_id)
    if state in _IS and state not in states:
        raise WrongState(f"{queue}/{msg_id} {_IS[state]}: only {only}")


def cancel(root: Root, words: list[str]) -> int:
    """Take waiting messages out (asks), end running ones."""
    parser = parser_of_many(
        "cancel",
        "Remove a waiting message, after asking; end a running one, which goes to err.",
    )
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.add_argument(
        "--batch",
        action="store_true",
        help="end the whole batch that it runs in: all its messages go to err",
    )
    args = parser.parse_args(words)
    if args.batch and args.queue:
        parser.error("say which: --batch ID..., or --queue QUEUE")
    if args.batch and args.ids:
        return each(root, args, _cancel_batch)
    return each_or_all(
        root, parser, args, lambda *target: _cancel(*target, yes=args.yes)
    )


def _cancel_batch(root: Root, queue: str, msg_id: str) -> str:
    owner.demand(root, queue, "cancel_batch", request(msg_id))
    return "is being ended with its batch; all messages of the batch go to err"


def _cancel(root: Root, queue: str, msg_id: str, *, yes: bool) -> str:
    with owner.Reader(root) as reader:
        state = reader.state(queue, msg_id)
    if state is State.RUN:
        owner.demand(root, queue, "cancel_message", request(msg_id))
        return "is being ended; it goes to err"
    if state not in (State.QUE, State.PREP):
        is_now = "is gone" if state is None else _IS[state]
        raise WrongState(
            f"{queue}/{msg_id} {is_now}: only messages that wait or run can be cancelled"
        )
    return _remove(root, queue, msg_id, state, yes=yes)


def delete(root: Root, words: list[str]) -> int:
    """Remove messages for good, with their log and attachments (asks)."""
    parser = parser_of_many(
        "delete",
        "Remove messages for good, with their logs and attachments, after asking.",
    )
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    args = parser.parse_args(words)
    return each_or_all(
        root, parser, args, lambda *target: _delete(*target, yes=args.yes)
    )


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
    owner.demand(root, queue, "delete_message", request(msg_id))
    return "removed"


def ack(root: Root, words: list[str]) -> int:
    """Mark failed messages as seen."""
    parser = parser_of_many(
        "ack",
        "Mark messages in err as seen: `rq status` no longer counts them as trouble. "
        "They stay, and `rq retry` still runs them again.",
        State.ERR,
    )
    parser.add_argument("--all", metavar="QUEUE", help="all messages in err of a queue")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    args = parser.parse_args(words)
    if args.all and (args.ids or args.queue):
        parser.error("say which: ID..., --queue QUEUE or --all QUEUE")
    if args.all:
        args.queue, args.yes = args.all, True
    return each_or_all(root, parser, args, _ack)


def _ack(root: Root, queue: str, msg_id: str) -> str:
    states = (State.ERR, State.DISMISSED)
    demand_state(root, (queue, msg_id), states, "messages in err can be marked as seen")
    try:
        owner.demand(root, queue, "ack_errs", request(msg_id))
    except WrongState:
        raise WrongState(f"{queue}/{msg_id} is marked as seen already") from None
    return "marked as seen"


def request(msg_id: str) -> dict[str, str]:
    return {"msg_id": msg_id, "who": who()}


def who() -> str:
    """Return the name of the person who asks, seen through sudo."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    behind = os.environ.get("SUDO_USER")
    return f"{behind} ({name})" if behind and behind != name else name


def each(root: Root, args: argparse.Namespace, act: Change) -> int:
    """Change each message and say so; when one cannot be changed, the others are."""
    place.demand_running(root)
    with owner.Reader(root) as reader:
        targets = [ids.resolve(reader, text) for text in args.ids]
    if len(targets) == 1:
        queue, msg_id = targets[0]
        print(f"{queue}/{msg_id} {act(root, queue, msg_id)}")
        return OK
    return max(_caught(root, target, act) for target in targets)


def _caught(root: Root, target: tuple[str, str], act: Change) -> int:
    from rq.cli import EXIT_OF, complain

    queue, msg_id = target
    try:
        print(f"{queue}/{msg_id} {act(root, queue, msg_id)}")
    except RQError as error:
        text = str(error)
        complain(text if msg_id in text else f"{queue}/{msg_id}: {text}")
        return EXIT_OF[error.kind]
    return OK


def each_or_all(
    root: Root,
    parser: argparse.ArgumentParser,
    args: argparse.Namespace,
    act: Change,
) -> int:
    """Change the messages that are named, or all that match."""
    bulk.check(parser, args)
    if args.queue:
        return bulk.run(root, parser.prog.removeprefix("rq "), args, who())
    return each(root, args, act)


def parser_of_many(
    verb: str, about: str, state: State | None = None
) -> argparse.ArgumentParser:
    """Return the parser of a verb that takes ids, or all messages that match; `state`:
    those that it means if none is named."""
    parser = term.parser(verb, about)
    parser.add_argument("ids", nargs="*", metavar="ID", help=term.ID)
    bulk.options(parser, state)
    return parser
