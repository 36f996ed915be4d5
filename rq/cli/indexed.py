"""`rq runs`, `rq failures`, `rq find`: what the index answers of all queues."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar, cast

from rq.cli import OK, place, term
from rq.cli.change import who
from rq.config import seen
from rq.errors import RQError
from rq.index import doors
from rq.index.doors import FailureView, HitView, RunView
from rq.index.questions import Index
from rq.index.rows import Freshness, RunsQuestion
from rq.layout import Root
from rq.message.causes import Cause
from rq.message.fieldnames import OF_TIMER
from rq.replies import TimerMiss
from rq.rpc import client
from rq.words.states import COUNTED, State
from rq.words.wording import duration, shortly

T = TypeVar("T")
_CUT = 60  # characters of a text in a table
_MOMENT = "18:00 (the last one), 2h (ago), epoch seconds or 2026-01-02T03:04"


def runs(root: Root, words: list[str]) -> int:
    parser = _parser(
        "runs",
        "What ran in a span of time, of all queues: the sums, then an attempt a line, the\n"
        "newest first. Without --since: since yesterday 18:00.",
    )
    parser.add_argument("--since", metavar="TIME", help=_MOMENT)
    parser.add_argument("--until", metavar="TIME", help="the same; now without it")
    parser.add_argument("--queue", metavar="QUEUE", help="of this queue only")
    parser.add_argument("--timer", metavar="NAME", help="what this timer has sent")
    parser.add_argument("--by", metavar="USER", help="what this user has sent")
    term.flag(parser, "--failed", "only what failed")
    term.flag(parser, "--slow", "only what ran longer than 95 %% of its queue's")
    _sorted(parser)
    args = parser.parse_args(words)
    now = time.time()
    question = doors.runs_question(_texts(args), now, None)
    answer, fresh = _ask(root, lambda index: index.runs(question, None))
    view = doors.runs_view(question, answer, _misses(root, question), fresh, now)
    if args.json:
        term.print_json(view)
        return OK
    slowest = view["sums"]["slowest"]
    print(doors.sums_text(view["sums"], duration(slowest["ran"]) if slowest else ""))
    head = ("STARTED", "RAN", "WAITED", "OUTCOME", "MESSAGE", "BY", "WHY")
    rows = [*map(_miss, view["misses"]), *map(_run, view["runs"])]
    if rows:
        term.table(head, rows)
    _tell(view["more"], fresh, now)
    return OK


def _run(row: RunView) -> tuple[object, ...]:
    why = " ".join(text for text in (row["cause"], shortly(row["text"] or "")) if text)
    return (
        term.moment(row["started"]),
        duration(row["ran"]),
        "-" if row["waited"] is None else duration(row["waited"]),
        row["outcome"],
        f"{row['queue']}/{row['msg_id']}",
        row["by"] or (f"{OF_TIMER}{row['timer']}" if row["timer"] else "-"),
        "" if row["outcome"] == "done" else _cut(why),
    )


def _misses(root: Root, question: RunsQuestion) -> list[TimerMiss]:
    """Return what timers missed; nothing, while they do not answer."""
    request = doors.misses_request(question)
    try:
        reply = client.ask_timers(root.timers_socket, "misses", request)
        return cast(list[TimerMiss], client.demanded(reply))
    except RQError:
        return []


def _miss(row: TimerMiss) -> tuple[object, ...]:
    fires = term.number(row["count"], "fire")
    why = f"{fires}: {row['text'] or row['why']}"
    to = row["queue"] or "-"
    return (
        term.moment(row["from"]),
        "-",
        "-",
        "missed",
        to,
        f"{OF_TIMER}{row['timer']}",
        _cut(why),
    )


def failures(root: Root, words: list[str]) -> int:
    parser = _parser(
        "failures",
        "The messages in err of all queues, by what they have in common: how many, since\n"
        "when, what they say. `new` marks what began since you said --seen. All of a group\n"
        "run again by `rq retry --group GROUP`; ack, move and delete do so.",
    )
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="of this queue only")
    term.flag(parser, "--seen", "what fails from now on is new")
    args = parser.parse_args(words)
    now, reader = time.time(), who()
    answer, fresh = _ask(root, lambda index: index.failures(args.queue, None))
    view, looked = doors.failures_view(answer, fresh, now), seen.failures(root, reader)
    if args.seen:
        seen.mark_failures(root, reader, now)
    if args.json:
        term.print_json(view)
        return OK
    term.listed(
        ("COUNT", "NEW", "GROUP", "QUEUES", "FIRST", "LAST", "WHAT THEY SAY"),
        [_failure(row, looked) for row in view["failures"]],
        "nothing has failed that is not acknowledged",
    )
    if view["failures"]:
        term.note(
            "`rq retry --group GROUP` runs all of a group again, `rq ack --group` "
            "acknowledges them"
        )
    _tell(False, fresh, now)
    return OK


def _failure(row: FailureView, looked: float) -> tuple[object, ...]:
    names = list(row["queues"])
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    news = "new" if row["first"] > looked else "more" if row["last"] > looked else ""
    return (
        row["count"],
        news if looked else "",
        row["group"],
        ", ".join(names[:2]) + more,
        term.moment(row["first"]),
        term.moment(row["last"]),
        _cut(shortly(row["wording"])),
    )


def find(root: Root, words: list[str]) -> int:
    parser = _parser(
        "find",
        "The messages of all queues that hold each WORD: any part, of three characters or\n"
        "more, of id, params, status, cause, unique_key or src. Logs are not searched.",
    )
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--by", metavar="USER", help="sent by this user alone")
    parser.add_argument("--queue", metavar="QUEUE", help="of this queue only")
    parser.add_argument("--state", metavar="STATE", help=f"one of {', '.join(COUNTED)}")
    parser.add_argument(
        "--since", metavar="TIME", help=f"accepted since then: {_MOMENT}"
    )
    _sorted(parser)
    args = parser.parse_args(words)
    if not (args.words or args.by):
        parser.error("say a WORD, or --by USER")
    now = time.time()
    fields = {**_texts(args), "words": " ".join(args.words)}
    question = doors.search_question(fields, now, None)
    answer, fresh = _ask(root, lambda index: index.search(question, None))
    view = doors.hits_view(answer, fresh, now)
    if args.json:
        term.print_json(view)
        return OK
    term.listed(
        ("MESSAGE", "STATE", "ACCEPTED", "PARAMS", "STATUS"),
        [_hit(row) for row in view["messages"]],
        _none(args),
    )
    _tell(view["more"], fresh, now)
    if view["messages"]:
        term.note("`rq show MESSAGE` says what happened to one, why, and what to do")
    return OK


def _none(args: argparse.Namespace) -> str:
    by = f" was sent by {args.by}" if args.by else ""
    holds = f" holds {' and '.join(map(repr, args.words))}" if args.words else ""
    return f"no message{by}{' and' if by and holds else ''}{holds}"


def _state(row: HitView) -> str:
    is_over = row["state"] in (State.ERR, State.DISMISSED)
    return (
        Cause.CANCELLED if is_over and row["cause"] == Cause.CANCELLED else row["state"]
    )


def _hit(row: HitView) -> tuple[object, ...]:
    return (
        f"{row['queue']}/{row['msg_id']}",
        _state(row),
        term.moment(row["accepted"]),
        _cut(" ".join(row["params"].values())),
        _cut(shortly(row["text"] or "")),
    )


# ---- what they share


def _parser(verb: str, about: str) -> argparse.ArgumentParser:
    parser = term.parser(verb, about)
    term.json_option(parser)
    return parser


def _sorted(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sort", metavar="FIELD", help="by this field; -FIELD: the largest first"
    )
    parser.add_argument(
        "--limit", metavar="N", help=f"at most so many ({doors.PAGE}; {doors.MOST})"
    )


def _texts(args: argparse.Namespace) -> dict[str, str]:
    """Return the options that were given, as every door puts a question."""
    values = vars(args).items()
    texts = {name: text for name, text in values if isinstance(text, str)}
    return texts | {name: "1" for name, value in values if value is True}


def _ask(root: Root, question: Callable[[Index], T]) -> tuple[T, Freshness]:
    place.root_config(root)
    with Index.at(root) as index:
        return question(index), index.freshness()


def _tell(more: bool, fresh: Freshness, now: float) -> None:
    """Say what is not listed, and how far the index has read."""
    if more:
        term.note("there are more: --limit lists them, up to 1000 at once")
    if text := doors.freshness_text(fresh, now):
        term.note(text)


def _cut(text: str) -> str:
    text = term.plain(text)
    return text if len(text) <= _CUT else f"{text[: _CUT - 1]}…"
