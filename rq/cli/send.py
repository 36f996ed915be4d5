"""`rq send`: one message, with attachments, perhaps waiting for its end."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from rq import client, moments, names
from rq.cli import ancestor, owner, place, term
from rq.cli.named import FRESH, Files
from rq.errors import BadInput, RQError
from rq.layout import Root
from rq.message import PARAMS


def named(words: list[str]) -> list[str]:
    """Return the files that the words name."""
    return list(_parser().parse_args(words).attach)


def send(root: Root, words: list[str], files: Files = FRESH) -> int:
    args = _parser().parse_args(words)
    config = place.root_config(root)
    fields = _fields(args)
    timeout = None if args.timeout is None else moments.duration(args.timeout)
    queue = ancestor.target(args.queue, {"relay-ok": True})
    msg_id = submit(root, queue, fields, args.attach, files)
    full = config.full_id(queue, msg_id)
    if not args.follow or args.json or args.id_only:
        _tell(args, {"queue": queue, "msg_id": msg_id, "full_id": full})
    else:
        place.note(f"sent {queue}/{msg_id}")
    return _stay(root, args, queue, msg_id, timeout)


def submit(
    root: Root,
    queue: str,
    fields: dict[str, Any],
    attachments: Sequence[str] = (),
    files: Files = FRESH,
) -> str:
    """Return the short id of a message that is accepted, attachments and all."""
    if not attachments:
        return _short(owner.demand(root, queue, "create_message", fields))
    short = _short(owner.demand(root, queue, "prep_message", fields))
    try:
        for pathname in attachments:
            reply = ancestor.attach(root, (queue, short), pathname, files)
            if reply[0] != "ok":
                raise client.refusal(f"{queue}: {pathname}: {reply[1]}", str(reply[1]))
    except RQError:
        owner.ask(root, queue, "delete_message", {"msg_id": short})
        raise
    owner.demand(root, queue, "commit_message", {"msg_id": short})
    return short


def _short(full: Any) -> str:
    return names.msg_id(str(full).rsplit("/", 1)[-1])


def _fields(args: argparse.Namespace) -> dict[str, Any]:
    given = {
        **{name: getattr(args, name) for name in (*PARAMS, "src", "max_count")},
        **dict(_param(pair) for pair in args.p),
        "due": None if args.due is None else moments.due(args.due, time.time()),
        "post_run_webhook": args.webhook,
    }
    set_ones = {name: value for name, value in given.items() if value is not None}
    return {"dest": args.queue, **set_ones}


def _param(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    name = f"param{name}" if name.isdigit() else name
    if not equals or name not in PARAMS:
        raise BadInput(f"-p {pair}: say -p param1=VALUE, up to param4")
    return name, value


def _tell(args: argparse.Namespace, sent: dict[str, str]) -> None:
    if args.json:
        term.print_json(sent)
    elif args.id_only:
        print(sent["msg_id"])
    else:
        print(f"sent {sent['queue']}/{sent['msg_id']}")
    sys.stdout.flush()


def _stay(
    root: Root,
    args: argparse.Namespace,
    queue: str,
    msg_id: str,
    timeout: float | None,
) -> int:
    from rq.cli import output, waiting

    if not args.wait and not args.follow:
        return 0
    with owner.Reader(root) as reader:
        if args.follow:
            output.follow(reader, queue, msg_id, 0)
        ended = waiting.until_ended(reader, [(queue, msg_id)], timeout)
        waiting.tell(reader, ended, quiet=args.json or args.id_only)
        return waiting.exit_code(ended)


def _parser() -> argparse.ArgumentParser:
    made = term.parser(
        "send",
        "Send a message. It is on disk when the command returns 0.\n\n"
        "  rq send demo -p1 hello --follow\n"
        "  rq send thumbs -p1 200 -a cat.jpg --due +10m",
    )
    made.add_argument("queue", metavar="QUEUE", help="a queue here, or a URL (relay)")
    for number, name in enumerate(PARAMS, 1):
        made.add_argument(f"-p{number}", f"--{name}", dest=name, metavar="VALUE")
    made.add_argument(
        "-p", action="append", default=[], metavar="N=VALUE", help="as -pN VALUE"
    )
    made.add_argument(
        "-a",
        "--attach",
        action="append",
        default=[],
        metavar="FILE",
        help="attach a copy of FILE",
    )
    made.add_argument("--due", metavar="WHEN", help="+10m, epoch seconds or ISO 8601")
    made.add_argument("--src", help="free text: where it comes from")
    made.add_argument("--max-count", type=int, metavar="N", help="retries (15)")
    made.add_argument(
        "--webhook", action="append", metavar="URL", help="told when it has ended"
    )
    made.add_argument("--wait", action="store_true", help="until it has ended")
    made.add_argument(
        "--follow", action="store_true", help="show its log, until it has ended"
    )
    made.add_argument("--timeout", metavar="TIME", help="of --wait: then exit 7")
    made.add_argument("--id-only", action="store_true", help="print the id alone")
    term.json_option(made)
    return made
