"""`rq queue`: the queues, and what the operator wants of them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

import orjson

from rq.cli import change, newqueue, owner, place, status, term
from rq.config import displaced
from rq.layout import Root
from rq.rpc import client
from rq.words import moments

_UNTIL = "it goes on by itself then: 18:00, +2h, or 2026-01-02T03:04"
# word: (command to the supervisor, what is true afterwards, one line of help)
_WANTED = {
    "pause": (
        "pause_queue",
        "paused: it takes messages and starts none",
        "take messages and start none; what runs goes on",
    ),
    "resume": ("resume_queue", "resumed", "start messages again after a pause"),
    "down": (
        "down_queue",
        "down: it takes no messages and starts none",
        "take no messages and start none",
    ),
    "up": ("up_queue", "up", "take messages again, and start them"),
    "restart": (
        "restart_queue",
        "restarting",
        "restart its process; scripts that do not end in time run again",
    ),
}


def queue(root: Root, words: list[str]) -> int:
    parser = term.parser("queue", "List, make, pause, stop or restart queues.")
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list the queues with their counts")
    term.json_option(listing)
    for word, (_, _, text) in _WANTED.items():
        verb = kinds.add_parser(word, help=text, description=text)
        verb.add_argument("queues", nargs="+", metavar="QUEUE")
        if word == "pause":
            verb.add_argument("--why", default="", metavar="TEXT", help="shown to all")
            verb.add_argument("--until", metavar="WHEN", help=_UNTIL)
    newqueue.options(kinds)
    if words[:1] == ["new"]:
        return newqueue.make(root, parser, words)
    args = parser.parse_args(words)
    if args.what == "ls":
        return _ls(root, as_json=args.json)
    for name in args.queues:  # a mistyped name must not leave the work half done
        if args.what != "restart" or name not in displaced.read(root):
            place.queue_dir(root, name)
    more = _pause(args) if args.what == "pause" else {}
    for name in args.queues:
        print(f"{name} {_tell(root, args.what, name, more)}")
    return 0


def _pause(args: argparse.Namespace) -> dict[str, object]:
    """Return what is said of a pause."""
    now = time.time()
    until = None if args.until is None else moments.until(args.until, now)
    return {"why": args.why, "until": until, "who": change.who()}


def _tell(root: Root, word: str, name: str, more: Mapping[str, object]) -> str:
    command, text, _ = _WANTED[word]
    about = orjson.dumps({"queue": name, **more}).decode() if more else name
    reply = place.ask_supervisor(root, command, about, timeout=60.0)
    client.demanded(reply, f"{name}: ")
    until = more.get("until")
    return text if until is None else f"{text}, until {term.moment(float(str(until)))}"


def _ls(root: Root, *, as_json: bool) -> int:
    with owner.Reader(root) as reader:
        rows = status.queue_rows(reader, place.queue_names(root))
    if as_json:
        term.print_json([row.to_json() for row in rows])
    else:
        status.queue_table(rows)
        status.tell_paused(root, rows)
        status.tell_rows(rows)
    return 0
