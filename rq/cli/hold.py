"""`rq hold` and `rq release`: waiting messages that are not to start, and go on."""

from __future__ import annotations

from rq.cli import change, owner
from rq.layout import Root
from rq.states import State


def hold(root: Root, words: list[str]) -> int:
    """Let waiting messages wait until they are released."""
    parser = change.parser_of_many(
        "hold",
        "Let waiting messages wait, however long they are due, until `release`.",
        State.QUE,
    )
    parser.add_argument("--why", default="", metavar="TEXT", help="shown with each")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    args = parser.parse_args(words)
    args.to = args.why

    def act(root: Root, queue: str, msg_id: str) -> str:
        request = {**change.request(msg_id), "why": args.why}
        return _changed(root, queue, "hold_message", request)

    return change.each_or_all(root, parser, args, act)


def release(root: Root, words: list[str]) -> int:
    """Let messages go on that are held."""
    parser = change.parser_of_many(
        "release", "Let messages go on that are held.", State.QUE
    )
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    args = parser.parse_args(words)
    return change.each_or_all(root, parser, args, _release)


def _release(root: Root, queue: str, msg_id: str) -> str:
    return _changed(root, queue, "release_message", change.request(msg_id))


def _changed(root: Root, queue: str, command: str, request: dict[str, str]) -> str:
    reply = owner.demand(root, queue, command, request)
    return str(reply).removeprefix("msg ")
