"""`rq ls`: messages in a table."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rq.cli import counting, owner, place, term
from rq.layout import Root
from rq.states import State

_SHOWN = (State.RUN, State.QUE, State.PREP, State.ERR)
_CHOICES = [str(s) for s in State if s not in (State.NOWHERE, State.GONE)]


def ls(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    if args.count:
        return _count(root, args)
    states = [State(one) for one in args.state] or list(_SHOWN)
    with owner.Reader(root) as reader:
        found = [
            one
            for queue in _queues(root, args)
            for state in states
            for one in reader.messages(queue, state, args.limit)
        ]
    if args.json:
        term.print_json(found)
    elif found:
        _table(found)
        _hint_of_more(args.limit, found)
    else:
        where = f"queue {args.queue}" if args.queue else "any queue"
        place.note(f"no message in {', '.join(states)} of {where}")
    return 0


def _queues(root: Root, args: argparse.Namespace) -> list[str]:
    if args.queue:
        return [place.queue_dir(root, args.queue).name]
    return place.queue_names(root)


def _count(root: Root, args: argparse.Namespace) -> int:
    """Say how many messages are in each state, without listing them."""
    with owner.Reader(root) as reader:
        found = {queue: counting.asked(reader, queue) for queue in _queues(root, args)}
    if args.json:
        term.print_json(found)
    else:
        counting.table(found)
    return 0


def _table(found: list[dict[str, Any]]) -> None:
    now = time.time()
    term.table(
        ("QUEUE", "ID", "STATE", "DUE", "TRY", "PARAM1", "STATUS"),
        [
            (
                one["queue"],
                one["msg_id"],
                one["state"],
                _due(one, now),
                one.get("attempt", "-"),
                str(one.get("param1") or "")[:30],
                _status(one),
            )
            for one in found
        ],
    )


def _status(one: dict[str, Any]) -> str:
    text = str(one.get("status", "")).partition(" - ")[2]
    return f"[batch of {one['messages']}] {text}" if "batch" in one else text


def _due(one: dict[str, Any], now: float) -> str:
    due = one.get("due")
    if one["state"] != State.QUE or due is None:
        return ""
    return term.from_now(float(due) - now)


def _hint_of_more(limit: int, found: list[dict[str, Any]]) -> None:
    groups: dict[tuple[str, str], int] = {}
    for one in found:
        pair = one["queue"], one["state"]
        groups[pair] = groups.get(pair, 0) + 1
    cut = [f"{queue} {state}" for (queue, state), n in groups.items() if n >= limit]
    if cut:
        place.note(f"only the newest {limit} of: {', '.join(cut)} (--limit N)")


def _parser() -> argparse.ArgumentParser:
    made = term.parser("ls", "List messages: what runs, waits, is prepared or failed.")
    made.add_argument("queue", nargs="?", metavar="QUEUE", help="of this queue only")
    made.add_argument(
        "--state",
        action="append",
        default=[],
        choices=_CHOICES,
        metavar="STATE",
        help="one of " + ", ".join(_CHOICES),
    )
    made.add_argument("--count", action="store_true", help="how many in each state")
    made.add_argument(
        "--limit",
        type=term.at_least(1),
        default=20,
        metavar="N",
        help="of each (20)",
    )
    term.json_option(made)
    return made
