"""Verbs that say where and when messages go on: move, due, priority, unack."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

from rq import moments
from rq.cli import change, owner, term
from rq.errors import WrongState
from rq.layout import Root
from rq.message.rank import LEAST, MOST
from rq.nesting import Json
from rq.states import State


def move(root: Root, words: list[str]) -> int:
    """Let messages that wait, or have failed, go on in another queue."""
    parser = change.parser_of_many(
        "move",
        "Move messages that wait, or have failed, to another queue: they run there, with "
        "their params and attachments; here they count as relayed.",
    )
    parser.add_argument(
        "--to", required=True, metavar="QUEUE", help="the queue that runs them"
    )
    args = _parsed(parser, words)
    return change.each_or_all(
        root, parser, args, lambda *target: _move(*target, to=args.to)
    )


def _move(root: Root, queue: str, msg_id: str, *, to: str) -> str:
    states = (State.QUE, State.ERR, State.DISMISSED)
    only = "messages that wait, or have failed, can be moved"
    change.demand_state(root, (queue, msg_id), states, only)
    _ask(root, queue, msg_id, "move_message", to=to)
    return f"is moved to {to}"


def due(root: Root, words: list[str]) -> int:
    """Let waiting messages run at another time."""
    parser = change.parser_of_many(
        "due",
        "Set when messages run that wait: earlier or later than they would.",
        State.QUE,
    )
    parser.add_argument(
        "--at",
        required=True,
        metavar="TIME",
        help="now, +10m, epoch seconds or 2026-01-02T03:04",
    )
    args = _parsed(parser, words)
    args.to = moments.due(args.at, time.time())
    only, outcome = "have a time at which they run", f"is due at {term.moment(args.to)}"
    return _set(root, parser, args, {"due": args.to}, (only, outcome))


def priority(root: Root, words: list[str]) -> int:
    """Let waiting messages run before or after others."""
    parser = change.parser_of_many(
        "priority",
        "Set the priority of messages that wait: of those that are due, 9 starts first.",
        State.QUE,
    )
    parser.add_argument(
        "--to",
        required=True,
        type=int,
        choices=range(LEAST, MOST + 1),
        metavar="N",
        help=f"{LEAST} to {MOST}; messages have {LEAST} unless they are sent with another",
    )
    args = _parsed(parser, words)
    only, outcome = "have a priority", f"has priority {args.to}"
    return _set(root, parser, args, {"priority": args.to}, (only, outcome))


def _set(
    root: Root,
    parser: argparse.ArgumentParser,
    args: argparse.Namespace,
    fields: Mapping[str, Json],
    words: tuple[str, str],
) -> int:
    """Set fields of messages that wait; `words`: what only these have, and what is told
    of each."""
    only, outcome = words

    def act(root: Root, queue: str, msg_id: str) -> str:
        refusal = f"messages that wait {only}"
        change.demand_state(root, (queue, msg_id), (State.QUE,), refusal)
        _ask(root, queue, msg_id, "set_message", **fields)
        return outcome

    return change.each_or_all(root, parser, args, act)


def unack(root: Root, words: list[str]) -> int:
    """Take acknowledgements back: the messages need a person again."""
    parser = change.parser_of_many(
        "unack",
        "Take back that failed messages were marked as seen: `rq status` counts them as "
        "trouble again.",
        State.DISMISSED,
    )
    args = _parsed(parser, words)
    return change.each_or_all(root, parser, args, _unack)


def _unack(root: Root, queue: str, msg_id: str) -> str:
    try:
        _ask(root, queue, msg_id, "reopen_message")
    except WrongState:
        raise WrongState(f"{queue}/{msg_id} is not marked as seen") from None
    return "is no longer marked as seen"


def _parsed(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    return parser.parse_args(words)


def _ask(root: Root, queue: str, msg_id: str, command: str, **more: Json) -> None:
    owner.demand(root, queue, command, {**change.request(msg_id), **more})
