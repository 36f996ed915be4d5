"""One thing done to all messages of a queue that a filter means, and `rq bulk`, which
lists and ends such requests."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import cast

from rq.cli import FAILED, OK, owner, place, term
from rq.errors import OutcomeUnknown, RQError, Unreachable, WrongState
from rq.layout import Root
from rq.message.action import Action, Many
from rq.message.table import PARAMS
from rq.replies import BulkChoice, BulkView
from rq.words import moments
from rq.words.nesting import Json
from rq.words.states import State

_PAUSE = 0.2  # seconds between looks at how far it is
_GIVEN = ("cause", "group", "text", "find", "key", "by", *PARAMS)
_LISTED = 10  # queues
_SHORT = 1.0  # seconds that are too short for a line of progress


def options(parser: argparse.ArgumentParser, default: State | None = None) -> None:
    """Add the options by which a verb takes all messages that match, not ids."""
    group = parser.add_argument_group(
        "all messages of a queue that match, instead of ids"
    )
    group.add_argument("--queue", metavar="QUEUE", help="of this queue")
    said = f" ({default})" if default else ""
    group.add_argument(
        "--state", default=default, metavar="STATE", help=f"in this state{said}"
    )
    group.add_argument(
        "--older", metavar="TIME", help="for so long at least: 90 (seconds), 10m, 2d"
    )
    group.add_argument("--cause", metavar="WORD", help="with this cause")
    group.add_argument(
        "--group",
        metavar="GROUP",
        help="that failed alike, as `rq failures` names it; without --queue: of all queues",
    )
    group.add_argument("--text", metavar="TEXT", help="whose last words contain TEXT")
    group.add_argument(
        "--find", metavar="WORDS", help="that hold each word, as `rq find` finds them"
    )
    group.add_argument("--key", metavar="KEY", help="with this unique_key")
    group.add_argument("--by", metavar="USER", help="that this user has sent")
    for name in PARAMS:
        group.add_argument(f"--{name}", metavar="VALUE", help=argparse.SUPPRESS)
    term.flag(group, "--dry-run", "only count them, and show ten")
    parser.epilog = (
        "--param1 VALUE … --param4 VALUE: whose param is this value.\n"
        f"{parser.epilog or ''}"
    )


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End with a usage error unless either ids are given, or a queue, or what failed
    alike in all queues."""
    if getattr(args, "batch", False) and is_many(args):
        parser.error("say which: --batch ID..., or --queue QUEUE")
    if bool(args.ids) == is_many(args):
        parser.error("say which: ID..., --queue QUEUE, or --group GROUP of all queues")
    if is_many(args) and not args.state:
        parser.error("say --state STATE, too")


def is_many(args: argparse.Namespace) -> bool:
    """Whether all that match are meant, not ids."""
    return bool(args.queue or args.group)


def run(
    root: Root, action: Action, args: argparse.Namespace, who: str, to: Json
) -> int:
    """Do an action, with `to`, to all messages that match, as `who` asks; say how far it
    is."""
    place.demand_running(root)
    request: dict[str, Json] = {
        "action": str(action.word),
        "filter": _filter(args, time.time()),
        "who": who,
        "to": to,
    }
    many = cast(Many, action.many)
    if not args.queue:
        return _of_all_queues(root, many, args, request)
    if args.dry_run or not args.yes:
        choice = _choice(root, args, request)
        if args.dry_run or not _agreed(many, args, request, [choice]):
            return OK
    view = cast(BulkView, owner.demand(root, args.queue, "bulk", request))
    return _watch(root, args.queue, many, view)


def _agreed(
    many: Many,
    args: argparse.Namespace,
    request: dict[str, Json],
    choices: Sequence[BulkChoice],
) -> bool:
    """Ask whether all that were counted are to be changed; then no others are meant."""
    number = sum(choice["messages"] for choice in choices)
    if not number:
        return False
    them = term.number(number, "message")
    if not term.confirm(many.question.format(them), yes=args.yes):
        print("nothing was changed")
        return False
    counted_at = min(choice["at"] for choice in choices)
    request["filter"] = _until_counted(request["filter"], counted_at)
    return True


def _of_all_queues(
    root: Root, many: Many, args: argparse.Namespace, request: dict[str, Json]
) -> int:
    """Do it to what failed alike in all queues; each owner says which of its messages are
    meant. Queues that do not answer are named, and left as they are."""
    choices, silent = _counted(root, request)
    number = sum(choice["messages"] for choice in choices.values())
    them = term.number(number, "message")
    print(f"{them} in {args.state} of {term.number(len(choices), 'queue')} would match")
    for queue, choice in list(choices.items())[:_LISTED]:
        print(f"  {queue}: {choice['messages']:,}")
    if len(choices) > _LISTED:
        print(f"  and {len(choices) - _LISTED} more")
    if args.dry_run or not _agreed(many, args, request, list(choices.values())):
        return FAILED if silent else OK
    views = {
        queue: cast(BulkView, owner.demand(root, queue, "bulk", request))
        for queue in choices
    }
    ends = [_watch(root, queue, many, view) for queue, view in views.items()]
    return max([*ends, FAILED if silent else OK])


def _counted(
    root: Root, request: dict[str, Json]
) -> tuple[dict[str, BulkChoice], list[str]]:
    """Return what matches in the queues that have such messages, and the silent ones."""
    trial, choices, silent = {**request, "dry_run": True}, {}, list[str]()
    for queue in place.queue_names(root):
        try:
            choice = cast(BulkChoice, owner.demand(root, queue, "bulk", trial))
        except RQError as error:
            term.note(f"{queue} is left as it is: {error}")
            silent.append(queue)
            continue
        if choice["messages"]:
            choices[queue] = choice
    return choices, silent


def _filter(args: argparse.Namespace, now: float) -> dict[str, Json]:
    wanted: dict[str, Json] = {"state": str(args.state)}
    if args.older is not None:
        wanted["before"] = now - moments.duration(args.older)
    given = {name: getattr(args, name) for name in _GIVEN}
    return wanted | {name: text for name, text in given.items() if text is not None}


def _until_counted(wanted: Json, at: float) -> dict[str, Json]:
    """Return a filter that means no more than what was counted, and agreed to: what has
    come into the state since, the answer was not about."""
    given = cast(dict[str, Json], wanted)
    return {**given, "before": min(at, cast(float, given.get("before", at)))}


def _choice(
    root: Root, args: argparse.Namespace, request: dict[str, Json]
) -> BulkChoice:
    """Count the messages that match, and show the first."""
    trial = {**request, "dry_run": True}
    choice = cast(BulkChoice, owner.demand(root, args.queue, "bulk", trial))
    number, ids = choice["messages"], choice["ids"]
    print(f"{args.queue}: {term.number(number, 'message')} in {args.state} would match")
    for msg_id in ids:
        print(f"  {args.queue}/{msg_id}")
    if number > len(ids):
        print(f"  and {number - len(ids)} more")
    return choice


def _watch(root: Root, queue: str, many: Many, view: BulkView) -> int:
    """Say how far it is until it has ended; who stops looking does not stop it."""
    began, bulk_id = time.monotonic(), view["bulk"]
    shows = sys.stderr.isatty()
    try:
        while view["state"] == "open":
            time.sleep(_PAUSE)
            view = _ask(root, queue, "show_bulk", bulk_id)
            if shows and time.monotonic() - began > _SHORT:
                text = f"\r{view['looked_at']} of {view['messages']}"
                print(text, end="", file=sys.stderr, flush=True)
    except (KeyboardInterrupt, Unreachable, OutcomeUnknown):
        term.note(
            f"it goes on while the queue runs: `rq bulk ls {queue}` shows how far it "
            f"is, `rq bulk cancel {queue} {bulk_id}` ends it"
        )
        raise
    finally:
        if shows and time.monotonic() - began > _SHORT:
            print(file=sys.stderr)
    return _tell(queue, many, view)


def _ask(root: Root, queue: str, command: str, bulk_id: str) -> BulkView:
    """Return how far a bulk is, after a command about it."""
    return cast(BulkView, owner.demand(root, queue, command, {"bulk": bulk_id}))


def _tell(queue: str, many: Many, view: BulkView) -> int:
    changed, why = view["changed"], term.plain(view.get("why", ""))
    print(f"{queue}: {term.number(changed, 'message')} {many.done}")
    again = view.get("failed_again", 0)
    if again:
        term.note(
            f"{term.number(again, 'message')} not changed: failed again meanwhile, and that "
            f"failure was not chosen; `rq ls {queue} --state err` shows it"
        )
    if left := view["messages"] - changed - again:
        it_they = "it" if left == 1 else "they"
        others = f"{left} not changed: {it_they} had moved on, or could not be"
        term.note(f"{others}; the last: {why}" if why else others)
    if view["state"] == "done":
        return OK
    term.note(f"it is {view['state']}" + (f": {why}" if why else ""))
    return FAILED


# ---- rq bulk


def bulk(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "bulk",
        "Requests that change all messages that match, as `rq retry --queue QUEUE` makes\n"
        "them: list those that are at work and the last that have ended, or end one. What\n"
        "one has changed by then stays so.",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list them, the last first")
    listing.add_argument("queue", metavar="QUEUE")
    term.json_option(listing)
    end = kinds.add_parser("cancel", help="end one")
    end.add_argument("queue", metavar="QUEUE")
    end.add_argument("bulk", metavar="ID")
    args = parser.parse_args(words)
    if args.what == "ls":
        return _ls(root, args.queue, as_json=args.json)
    view = _ask(root, args.queue, "cancel_bulk", args.bulk)
    if view["state"] != "cancelled":
        raise WrongState(f"bulk {args.bulk} is {view['state']} already")
    done = f"{view['changed']} of {term.number(view['messages'], 'message')}"
    print(f"{args.bulk} cancelled: it has changed {done}")
    return OK


def _ls(root: Root, queue: str, *, as_json: bool) -> int:
    views = cast(Sequence[BulkView], owner.demand(root, queue, "list_bulks"))
    term.listed(
        ("ID", "ACTION", "STATE", "CHANGED", "OF", "SINCE", "BY"),
        [_row(view) for view in views],
        f"no request has changed many messages of {queue} lately",
        views if as_json else None,
    )
    return OK


def _row(view: BulkView) -> tuple[object, ...]:
    return (
        view["bulk"],
        view["action"],
        view["state"],
        view["changed"],
        view["messages"],
        term.moment(view["since"]),
        view["by"],
    )
