"""`rq hold` and `rq release`: waiting messages that are not to start, and go on."""

from __future__ import annotations

from rq.cli import change, owner, term
from rq.layout import Root


def hold(root: Root, words: list[str]) -> int:
    """Let waiting messages wait until they are released."""
    parser = term.parser(
        "hold", "Let waiting messages wait, however long they are due, until `release`."
    )
    parser.add_argument("ids", nargs="+", metavar="ID", help=term.ID)
    parser.add_argument("--why", default="", metavar="TEXT", help="shown with each")
    args = parser.parse_args(words)

    def act(root: Root, queue: str, msg_id: str) -> str:
        request = {**change.request(msg_id), "why": args.why}
        return _changed(root, queue, "hold_message", request)

    return change.each(root, args, act)


def release(root: Root, words: list[str]) -> int:
    """Let messages go on that are held."""
    parser = term.parser("release", "Let messages go on that are held.")
    parser.add_argument("ids", nargs="+", metavar="ID", help=term.ID)
    return change.each(root, parser.parse_args(words), _release)


def _release(root: Root, queue: str, msg_id: str) -> str:
    return _changed(root, queue, "release_message", change.request(msg_id))


def _changed(root: Root, queue: str, command: str, request: dict[str, str]) -> str:
    reply = owner.demand(root, queue, command, request)
    return str(reply).removeprefix("msg ")
