"""`rq flow`: messages that wait for each other, sent at once, and looked at as one."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from rq import names
from rq.builtin.flow import deeds, door, look, record
from rq.cli import ENDED_IN_ERR, FAILED, OK, TIMEOUT, owner, term
from rq.cli.change import who
from rq.cli.named_files import FRESH, Files
from rq.errors import BadInput
from rq.flow import marks, plan, text, view
from rq.flow.marks import Mark
from rq.flow.plan import Plan
from rq.flow.view import Flow
from rq.layout import Root
from rq.message.fieldnames import KEY
from rq.replies.flow import FlowRow
from rq.scripts import python as script
from rq.words import moments

_STDIN = "-"
_LISTED = 20
_PAUSE = 0.2  # seconds between two looks
_DECIDED = 2.0  # seconds in which owners hear of each other, if no hint is lost
# How a flow stands that does not go on by itself, and the exit code for it.
_ENDS = {
    Mark.DONE: OK,
    Mark.NOT_RUN: OK,
    Mark.FAILED: ENDED_IN_ERR,
    Mark.CANCELLED: ENDED_IN_ERR,
    Mark.GONE: ENDED_IN_ERR,
}


def named(words: list[str]) -> list[str]:
    """Return the file that the words name."""
    args = _parser().parse_args(words)
    return [args.file] if args.what == "run" and args.file != _STDIN else []


def flow(root: Root, words: list[str], files: Files = FRESH) -> int:
    args = _parser().parse_args(words)
    if args.what == "run":
        return _run(root, args, files)
    if args.what == "ls":
        return _list(root, args)
    flow_ = look.flow_of(root, _id_in(root, args.flow))
    return _VERBS[args.what](root, flow_, args)


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "flow",
        "Flows: messages of which some wait for others, sent all at once or not at all.\n\n"
        "  rq flow run nightly.json\n"
        "  rq flow show 20260102.0304.05.006.7",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    running = kinds.add_parser("run", help="send a flow")
    running.add_argument("file", metavar="FILE", help="its plan, JSON; - is stdin")
    running.add_argument(
        "--key", help="send it once: with the same key it is the first flow"
    )
    term.flag(running, "--check", "say whether the plan is right, and send nothing")
    listing = kinds.add_parser("ls", help="list flows, the newest first")
    listing.add_argument("--limit", type=term.at_least(1), default=_LISTED, metavar="N")
    term.json_option(listing)
    showing = kinds.add_parser("show", help="how a flow stands: its graph, and sums")
    term.flag(showing, "--all", "each message of long layers, too")
    term.json_option(showing)
    again = kinds.add_parser("rerun", help="send a message and all after it again")
    again.add_argument(
        "--from",
        dest="start",
        default="",
        metavar="NAME",
        help="send this one and all after it (all of the flow)",
    )
    for verb in (running, again):
        _waits(verb)
    retrying = kinds.add_parser("retry", help="run what failed again; the rest goes on")
    term.flag(retrying, "--cancelled", "what was cancelled while it ran, too")
    stopping = kinds.add_parser("cancel", help="end all of it that has not ended")
    stopping.add_argument("--yes", "-y", action="store_true", help="do not ask")
    for verb in (showing, again, retrying, stopping):
        verb.add_argument("flow", metavar="ID", help="the id of a flow")
    return parser


def _waits(parser: argparse.ArgumentParser) -> None:
    """Add what a verb takes that sends a flow."""
    term.flag(parser, "--id-only", "print the id and nothing else")
    term.flag(parser, "--wait", "wait until it has ended, or failed and rests")
    parser.add_argument(
        "--timeout", metavar="TIME", help="wait no longer than 90 (seconds), 10m or 1h"
    )


def _id_in(root: Root, text_: str) -> str:
    """Return the id of a flow by what a person types: an id, its beginning, flow/ID."""
    from rq.cli import ids

    bare = text_.removeprefix(f"{record.QUEUE}/")
    if names.is_msg_id(bare):
        return bare
    with owner.Reader(root) as reader:
        queue, msg_id = ids.resolve(reader, text_ if "/" in text_ else f"flow/{bare}")
    if queue != record.QUEUE:
        raise BadInput(f"{text_} is a message of queue {queue}, and no flow")
    return msg_id


# ---- sending


def _run(root: Root, args: argparse.Namespace, files: Files) -> int:
    wanted = _plan(args.file, files)
    if args.key is not None:
        wanted = replace(wanted, key=args.key)
    if args.check:
        door.check(root, wanted)
        print(_about(wanted))
        return OK
    return _send(root, wanted, args)


def _send(root: Root, wanted: Plan, args: argparse.Namespace) -> int:
    """Send a flow, and wait for its end if that is meant."""
    msg_id = _sent(root, wanted, id_only=args.id_only)
    if not args.wait:
        return OK
    timeout = math.inf if args.timeout is None else moments.duration(args.timeout)
    return _until_ended(root, msg_id, time.monotonic() + timeout)


def _until_ended(root: Root, msg_id: str, until: float) -> int:
    """Wait until nothing of a flow goes on by itself; say what became of it."""
    before: FlowRow | None = None
    since = time.monotonic()
    while True:
        row, now = (
            view.row(look.flow_of(root, msg_id), lambda queue: True),
            time.monotonic(),
        )
        if row != before:
            before, since = row, now
        code = _ENDS.get(Mark(row["mark"]))
        # What waits for one that has failed may be decided in a moment.
        rests = Mark.WAITS not in row["sums"] or now - since > _DECIDED
        if (code is not None and rests) or now > until:
            term.note(f"flow/{msg_id} {row['mark']}: {row['text']}")
            return TIMEOUT if code is None else code
        time.sleep(_PAUSE)


def _plan(path: str, files: Files) -> Plan:
    data = sys.stdin.buffer.read() if path == _STDIN else files.read(path)
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BadInput(f"{path} is no JSON: {error}") from None
    return plan.parse(value, script.own_message())


def _about(wanted: Plan) -> str:
    messages = term.number(len(wanted.nodes), "message")
    layers = term.number(len(wanted.layers), "layer")
    return f"{messages} in {layers}, for {', '.join(wanted.queues)}"


def _sent(root: Root, wanted: Plan, *, id_only: bool = False) -> str:
    """Send a flow and say so; return its id."""
    key = {} if wanted.key is None else {KEY: wanted.key}
    sent = door.send(root, wanted, key)
    msg_id = sent.msg_id
    if id_only:
        print(msg_id)
        return msg_id
    word = "stands already" if sent.stood else "sent"
    print(f"{word} flow/{msg_id}: {_about(wanted)}; `rq flow show {msg_id}` shows it")
    return msg_id


def _rerun(root: Root, flow: Flow, args: argparse.Namespace) -> int:
    return _send(root, deeds.part(flow, args.start), args)


# ---- looking


def _show(root: Root, flow: Flow, args: argparse.Namespace) -> int:
    answer = view.view(flow, lambda queue: True)
    if args.json:
        term.print_json(answer)
        return OK
    name = f" {term.plain(answer['name'])}" if answer["name"] else ""
    mark = marks.LOOKS[Mark(answer["mark"])]
    print(term.colour(f"flow/{answer['msg_id']}{name}: {answer['text']}", mark.colour))
    print()
    for line in text.lines(answer, term.colour, whole=args.all):
        print(line)
    if "end" in answer:
        print(f"\n{answer['end']['text']}")
    return OK


def _list(root: Root, args: argparse.Namespace) -> int:
    flows = look.newest(root, args.limit)
    rows = [view.row(each, lambda queue: True) for each in flows]
    term.listed(
        ("FLOW", "NAME", "STANDS", "MESSAGES"),
        [(r["msg_id"], r["name"], r["mark"], r["text"]) for r in rows],
        "there are no flows: `rq flow run FILE` sends one",
        rows if args.json else None,
    )
    return OK


# ---- changing


def _retry(root: Root, flow: Flow, args: argparse.Namespace) -> int:
    done = deeds.retry(root, flow, who(), cancelled=args.cancelled)
    if done.left:
        term.note(deeds.left_text(flow, done.left))
    return _tell(done, "will run again")


def _cancel(root: Root, flow: Flow, args: argparse.Namespace) -> int:
    question = f"End all of flow {flow.msg_id} that has not ended?"
    if not term.confirm(question, yes=args.yes):
        return FAILED
    return _tell(deeds.cancel(root, flow, who()), "ended")


def _tell(done: deeds.Done, word: str) -> int:
    print(f"{term.number(done.changed, 'message')} {word}")
    for failure in done.failures:
        term.note(failure)
    return FAILED if done.failures else OK


_VERBS: dict[str, Callable[[Root, Flow, argparse.Namespace], int]] = {
    "show": _show,
    "rerun": _rerun,
    "retry": _retry,
    "cancel": _cancel,
}
