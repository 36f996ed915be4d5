"""`rq owed`: copies and webhooks that ended messages still owe to other queues."""

from __future__ import annotations

import argparse
from typing import Any

from rq.cli import owner, place, term
from rq.errors import NoSuchMessage, RQError, Unreachable
from rq.layout import Root

_WAYS = {
    "delivered": "it has arrived there",
    "again": "it has not: try it for six more days",
    "drop": "give it up",
}


def owed(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    if args.what == "ls":
        return _ls(root, args.queue, as_json=args.json)
    how = next(way for way in _WAYS if getattr(args, way))
    return _resolve(root, args.key, "dropped" if how == "drop" else how)


def _parser() -> argparse.ArgumentParser:
    made = term.parser(
        "owed", "Copies and webhooks that ended messages still owe to other queues."
    )
    kinds = made.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list them, those in doubt first")
    listing.add_argument("queue", nargs="?", metavar="QUEUE", help="whose messages'")
    term.json_option(listing)
    resolve = kinds.add_parser("resolve", help="say what became of one in doubt")
    resolve.add_argument("key", metavar="KEY", help="as `rq owed ls` shows it")
    how = resolve.add_mutually_exclusive_group(required=True)
    for way, text in _WAYS.items():
        how.add_argument(f"--{way}", action="store_true", help=text)
    return made


def _ls(root: Root, queue: str | None, *, as_json: bool) -> int:
    found = _found(root, queue)
    if as_json:
        term.print_json(found)
    elif found:
        heads = ("KEY", "STATE", "MESSAGE", "TARGET", "SINCE", "WHY")
        term.table(heads, [_row(one) for one in found])
    else:
        place.note("no ended message owes anything to another queue")
    return 0


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    state = "in doubt" if one["in_doubt"] else "waiting"
    whose = f"{one['queue']}/{one['msg_id']}"
    since = term.moment(float(one["since"]))
    return one["key"], state, whose, one["target"], since, one["why"][:80]


def _found(root: Root, queue: str | None) -> list[dict[str, Any]]:
    """Return what is owed by the messages of a queue, or of all that answer."""
    if queue is not None:
        return [{"queue": queue, **one} for one in owner.demand(root, queue, "owed")]
    place.demand_running(root)
    found = []
    for name in place.queue_names(root):
        try:
            found += _found(root, name)
        except RQError as error:
            place.note(str(error))
    return sorted(found, key=lambda one: not one["in_doubt"])


def _resolve(root: Root, key: str, how: str) -> int:
    place.demand_running(root)
    asked = {"key": key, "as": how, "who": "rq owed"}
    said = owner.demand(root, _owing(root, key), "resolve_owed", asked)
    print(f"{key}: {said}")
    return 0


def _owing(root: Root, key: str) -> str:
    """Return the queue that owes something under a key."""
    silent = []
    for name in place.queue_names(root):
        try:
            if owner.demand(root, name, "owed", {"key": key}):
                return name
        except RQError as error:
            silent.append(str(error))
    if silent:
        raise Unreachable(f"none that answers owes {key:.80}; {'; '.join(silent)}")
    raise NoSuchMessage(f"nothing is owed under {key:.80}; `rq owed ls` lists what is")
