"""`rq send`: one message, with attachments, perhaps waiting for its end."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import cast

from rq import names
from rq.cli import ancestor, owner, place, term
from rq.cli.named_files import FRESH, Files
from rq.errors import BadInput, NotUnique, RQError
from rq.layout import Root
from rq.message import after, limits
from rq.message.table import PARAMS, ROWS, Kind
from rq.rpc import client
from rq.scripts import python as script
from rq.words import moments
from rq.words.nesting import Json

_KEY = "_key"
_OPTIONS = tuple(row for row in ROWS if row.option)

_JOINED = "joined"  # of an owner's answer: nothing new was made


def named(words: list[str]) -> list[str]:
    """Return the files that the words name."""
    return list(_parser().parse_args(words).attach)


def send(root: Root, words: list[str], files: Files = FRESH) -> int:
    args = _parsed(words)
    config = place.root_config(root)
    fields = _fields(args)
    timeout = None if args.timeout is None else moments.duration(args.timeout)
    queue = ancestor.target(args.queue, {"relay-ok": True})
    msg_id, joined = submitted(root, queue, fields, args.attach, files)
    full = config.full_id(queue, msg_id)
    if not args.follow or args.json or args.id_only:
        more: dict[str, Json] = {"joined": True} if joined else {}
        _tell(args, {"queue": queue, "msg_id": msg_id, "full_id": full, **more})
    else:
        term.note(f"{_word(joined)} {queue}/{msg_id}")
    return _stay(root, args, queue, msg_id, timeout)


def send_by_token(words: list[str]) -> int:
    """As `send`, of a script that runs as another user and may not ask the owner."""
    from rq.cli import by_token

    args = _parsed(words)
    by_token.refuse(
        {"--attach": args.attach, "--wait": args.wait, "--follow": args.follow}
    )
    queue = ancestor.target(args.queue, {"relay-ok": True})
    msg_id, joined = by_token.submitted(queue, _fields(args))
    more: dict[str, Json] = {"joined": True} if joined else {}
    _tell(args, {"queue": queue, "msg_id": msg_id, **more})
    return 0


def submitted(
    root: Root,
    queue: str,
    fields: Mapping[str, Json],
    attachments: Sequence[str] = (),
    files: Files = FRESH,
) -> tuple[str, bool]:
    """Return the short id of a message that is accepted, attachments and all; and whether
    that is an equal message, which it has joined."""
    if not attachments:
        reply = owner.demand_all(root, queue, "create_message", fields)
        return _short(reply[1]), _JOINED in reply[2:]
    short = _short(owner.demand(root, queue, "prep_message", fields))
    try:
        for pathname in attachments:
            reply = ancestor.attach(root, (queue, short), pathname, files)
            client.demanded(reply, f"{queue}: {pathname}: ")
    except RQError:
        owner.ask(root, queue, "delete_message", {"msg_id": short})
        raise
    try:
        reply = owner.demand_all(root, queue, "commit_message", {"msg_id": short})
    except NotUnique:  # after other failures it may have been accepted
        owner.ask(root, queue, "delete_message", {"msg_id": short})
        raise
    return (_short(reply[3]), True) if _JOINED in reply[2:] else (short, False)


def _short(full: Json) -> str:
    return names.msg_id(str(full).rsplit("/", 1)[-1])


def _fields(args: argparse.Namespace) -> dict[str, Json]:
    given: dict[str, Json] = {
        **{name: getattr(args, name) for name in PARAMS},
        **{row.name: getattr(args, row.name) for row in _OPTIONS},
        **dict(_param(pair) for pair in args.p),
        **dict(_limit(pair) for pair in args.limit),
        "due": None if args.due is None else moments.due(args.due, time.time()),
        "post_run_webhook": args.webhook,
        "hold": (args.why or True) if args.hold else None,
        _KEY: args.key,
    }
    if (own := script.own_message()) and after.names_self(given.get("after")):
        given["after"] = cast(Json, after.with_self(given["after"], own))
    present = {name: value for name, value in given.items() if value is not None}
    return {"dest": args.queue, **present}


def _limit(pair: str) -> tuple[str, Json]:
    try:
        name, value = limits.from_words(pair)
    except ValueError as error:
        raise BadInput(f"--limit {error}") from None
    return name, moments.due(value, time.time()) if name == "deadline" else value


def _param(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    name = f"param{name}" if name.isdigit() else name
    if not equals or name not in PARAMS:
        raise BadInput(f"-p {pair}: say -p 1=VALUE, or -p param1=VALUE, up to 4")
    return name, value


def _word(joined: bool) -> str:
    return "joined, an equal message stands:" if joined else "sent"


def _tell(args: argparse.Namespace, sent: Mapping[str, Json]) -> None:
    if args.json:
        term.print_json(sent)
    elif args.id_only:
        print(sent["msg_id"])
    else:
        print(f"{_word('joined' in sent)} {sent['queue']}/{sent['msg_id']}")
    sys.stdout.flush()


def _stay(
    root: Root,
    args: argparse.Namespace,
    queue: str,
    msg_id: str,
    timeout: float | None,
) -> int:
    from rq.cli import output, wait

    if not args.wait and not args.follow:
        return 0
    with owner.Reader(root) as reader:
        if args.follow:
            output.follow(reader, queue, msg_id, 0)
        ended = wait.until_ended(reader, [(queue, msg_id)], timeout)
        wait.tell(reader, ended, quiet=args.json or args.id_only)
        return wait.exit_code(ended)


def _parsed(words: list[str]) -> argparse.Namespace:
    parser = _parser()
    args = parser.parse_args(words)
    if args.why and not args.hold:
        parser.error("--why says why the message is held: say --hold, too")
    if args.key is not None and args.attach:
        parser.error("--key is for a message without attachments")
    return args


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "send",
        "Send a message to a queue. When the command returns 0, it is safely on disk.\n\n"
        "  rq send demo -p1 hello --follow\n"
        "  rq send thumbs -p1 200 -a cat.jpg --due +10m",
    )
    parser.add_argument(
        "queue", metavar="QUEUE", help="a queue of this RQ, or the URL of one elsewhere"
    )
    for number, name in enumerate(PARAMS, 1):
        parser.add_argument(f"-p{number}", f"--{name}", dest=name, metavar="VALUE")
    parser.add_argument(
        "-p",
        action="append",
        default=[],
        metavar="N=VALUE",
        help="the same as -pN VALUE",
    )
    parser.add_argument(
        "-a",
        "--attach",
        action="append",
        default=[],
        metavar="FILE",
        help="attach a copy of FILE",
    )
    parser.add_argument(
        "--key",
        metavar="TEXT",
        help="send it once: with the same text again, by you, it is the first message",
    )
    parser.add_argument(
        "--due",
        metavar="WHEN",
        help="not before: +10m, 2026-01-02T03:04 (local time, or with a zone) or epoch seconds",
    )
    term.flag(parser, "--hold", "hold it until `rq release`")
    parser.add_argument("--why", default="", metavar="TEXT", help="shown while held")
    for row in _OPTIONS:
        default = "" if row.default is None else f" ({row.default})"
        parser.add_argument(
            f"--{row.name.replace('_', '-')}",
            type=int if row.kind is Kind.WHOLE else str,
            metavar=row.option,
            help=f"{row.said}{default}",
        )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of its script: timeout=10m, memory='512 MiB', deadline=+1h …",
    )
    parser.add_argument(
        "--webhook",
        action="append",
        metavar="URL",
        help="an address that is told when it has ended",
    )
    term.flag(parser, "--wait", "wait until it has ended")
    term.flag(parser, "--follow", "print its log, until it has ended")
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        help="stop waiting after 90 (seconds), 10m or 1h, with exit status 7",
    )
    term.flag(parser, "--id-only", "print the id alone")
    term.json_option(parser)
    return parser
