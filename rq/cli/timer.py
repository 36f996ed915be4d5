"""`rq timer`: the timers, and when they fire."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from rq import config, zones
from rq.cli import owner, place, term, timer_import
from rq.errors import BadConfig, BadInput, RQError, Unreachable
from rq.layout import Root
from rq.replies import (
    FireView,
    MissView,
    NextFire,
    TimerRow,
    TimersStatus,
    TimerView,
    health,
)
from rq.rpc import client
from rq.timers.cron import local
from rq.timers.fires import Fires
from rq.timers.folder import all_lacks
from rq.timers.past import Past, with_rule
from rq.timers.rows import RUN
from rq.timers.rule import Timer
from rq.timers.state import read_state
from rq.timers.timer import parse, refusal
from rq.timers.views import outcome
from rq.timers.when import ON_TIME, following
from rq.words.nesting import Json
from rq.words.states import State
from rq.words.wording import duration, moment

_FIRES = 5  # fires
_TIMEOUT = 60.0  # seconds
_OF_FLOWS = ("/q/flow/", "/flows/")  # where a message lies, and where its flow is shown


def timer(root: Root, words: list[str]) -> int:
    parser = term.parser("timer", "Timers send a message when it is time to.")
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list them, and when they fire")
    term.json_option(listing)
    telling = kinds.add_parser("show", help="what became of the fires of one")
    telling.add_argument("name", metavar="TIMER")
    term.json_option(telling)
    checking = kinds.add_parser("validate", help="check files, and say when they fire")
    checking.add_argument("files", nargs="+", metavar="FILE", help="NAME.json")
    timer_import.options(kinds)
    fires = kinds.add_parser("next", help="the next fires of all, or of some")
    fires.add_argument(
        "words", nargs="*", metavar="[COUNT] TIMER", help="how many (10), and of which"
    )
    term.json_option(fires)
    for verb, (_, about) in _DEEDS.items():
        deed = kinds.add_parser(verb, help=about)
        deed.add_argument("names", nargs="+", metavar="TIMER")
    seeing = kinds.add_parser(
        "ack", help="you have seen what they missed, and that the last failed"
    )
    seeing.add_argument("names", nargs="*", metavar="TIMER")
    term.flag(seeing, "--all", "all of which `rq status` says something")
    args = parser.parse_args(words)
    if args.what == "import":
        return timer_import.take_over(root, args)
    if args.what == "validate":
        validate(root, args.files)
    elif args.what == "next":
        count, names = _next_of(args.words)
        upcoming(root, count, names, as_json=args.json)
    elif args.what == "ls":
        _list(root, as_json=args.json)
    elif args.what == "show":
        show(root, args.name, as_json=args.json)
    elif args.what == "ack":
        ack(root, args.names, every=args.all)
    else:
        _DEEDS[args.what][0](root, args.names)
    return 0


def _next_of(words: list[str]) -> tuple[int, list[str]]:
    """Return how many fires of which timers are asked for; a number may stand first.

    >>> _next_of([]), _next_of(["daily"]), _next_of(["3", "daily", "7"])
    ((10, []), (10, ['daily']), (3, ['daily', '7']))
    """
    if not words or not re.fullmatch(r"-?\d{1,18}", words[0], re.ASCII):
        return 10, words
    if int(words[0]) < 1:
        raise BadInput(f"{words[0]} is not a number of fires, 1 or more")
    return int(words[0]), words[1:]


def _list(root: Root, *, as_json: bool) -> None:
    rows, now = _rows(root), time.time()
    term.listed(
        ("TIMER", "WHEN", "DEST", "DUE", "LAST", "OUTCOME", "SUCCESS", "RESULT"),
        [_cells(row, now) for row in rows],
        "there are no timers: link a JSON file into timers/",
        rows if as_json else None,
    )


def _rows(root: Root) -> list[TimerRow]:
    try:
        reply = client.ask_timers(root.timers_socket, "status", timeout=10.0)
    except Unreachable:
        term.note(
            "the timers process does not answer: this is read from the folders"
            if place.is_running(root)
            else "RQ is not running: this is read from the folders"
        )
        return _from_folder(root)
    status = cast(TimersStatus, reply[1])
    errors = status.get("errors") or {}
    names = {row["name"] for row in status["timers"]}
    broken: list[TimerRow] = [
        {"name": name, "error": text}
        for name, text in errors.items()
        if name not in names
    ]
    return [*status["timers"], *broken]


def _from_folder(root: Root) -> list[TimerRow]:
    try:
        links = sorted(path for path in root.timers.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []
    try:
        fired = read_state(root)
    except BadConfig:
        fired = {}
    held = Fires(root, {})
    return [_from_file(link, fired, held) for link in links]


def _from_file(link: Path, fired: Mapping[str, Past], held: Fires) -> TimerRow:
    name = link.name.partition(".")[0]
    row: TimerRow = {"name": name, "last": fired.get(name, Past()).last}
    row.update(outcome(held.of(name)))
    try:
        data = config.read_json(link)
        message = data.get("msg")
        row["period"] = data.get("period")
        row["cron"] = data.get("cron")
        row["timezone"] = data.get("timezone", "UTC")
        row["dest"] = message.get("dest") if isinstance(message, dict) else None
    except BadConfig as error:
        row["error"] = str(error)
    return row


def _when(row: TimerRow) -> str:
    """Return how often it fires; of a file, which may hold anything."""
    period: object = row.get("period")
    if isinstance(period, int):
        return duration(period)
    return f"{row['cron']} {row.get('timezone')}" if row.get("cron") else "-"


def _due(row: TimerRow, now: float) -> str:
    due = row.get("due")
    if due is None:
        return "paused" if row.get("paused") else ""
    return term.from_now(due - now)


def _cells(row: TimerRow, now: float) -> tuple[object, ...]:
    last = row.get("fired") or row.get("last")
    return (
        row.get("name"),
        _when(row),
        row.get("dest") or "",
        _due(row, now),
        term.moment(last) if last else "",
        row.get("outcome") or "",
        _ago(row.get("last_success"), now),
        _result(row),
    )


def _ago(at: float | None, now: float) -> str:
    return "" if at is None else term.from_now(at - now)


def _result(row: TimerRow) -> str:
    """Return what a person should know of the last fire: what went wrong comes first."""
    if error := row.get("error"):
        return error
    said = [health.in_words(trouble)] if (trouble := row.get("trouble")) else []
    result = row.get("result") or ""
    if not result.startswith("sent ") or not (said or row.get("outcome")):
        said.append(result)
    return "; ".join(text for text in said if text)


# ---- rq timer show and ack


def show(root: Root, name: str, *, as_json: bool) -> None:
    """Print what became of the fires of a timer."""
    view = cast(TimerView, _ask(root, "timer", name))
    if as_json:
        term.print_json(view)
        return
    now = time.time()
    print(f"{term.plain(name)}: {_when(view)}, to {term.plain(view.get('dest'))}")
    for label, text in _facts(view, now):
        print(f"{label + ':':<14}{term.plain(text)}")
    waits = _waits(root, view["dest"] or "", view["fires"])
    fires = [_fire_cells(fire, waits.get(fire["url"], "")) for fire in view["fires"]]
    rows = [*fires, *map(_miss_cells, view["misses"])]
    if rows:
        print()
        newest_first = sorted(rows, key=lambda row: -row[0])
        head = ("FIRE", "OUTCOME", "LATE", "MESSAGE", "WHY")
        term.table(head, [cells for _, cells in newest_first])


def _facts(view: TimerView, now: float) -> Iterator[tuple[str, str]]:
    due, success = view.get("due"), view.get("last_success")
    yield "next", "paused" if due is None else f"{moment(due)} UTC, {_due(view, now)}"
    when = "none" if success is None else f"{moment(success)} UTC, {_ago(success, now)}"
    yield "last success", when
    if within := view.get("expect"):
        yield "expected", f"a success within {duration(within)}"
    if error := view.get("error"):
        yield "error", error
    if trouble := view.get("trouble"):
        # What is overdue ends with a success, not with a person's word.
        verb = "ack" if trouble["missed"] or trouble["failed"] else "run"
        yield "trouble", f"{health.in_words(trouble)} (`rq timer {verb}`)"


def _waits(root: Root, dest: str, fires: Sequence[FireView]) -> dict[str, str]:
    """Return for what messages wait, by their addresses. Only their queues know: a job
    that has not run waits, as a rule, in one that is paused."""
    waiting = [fire["url"] for fire in fires if fire["outcome"] == State.QUE]
    reasons = {}
    with owner.Reader(root) as reader:
        for url in waiting:
            with contextlib.suppress(RQError):  # it has gone on, or its queue is silent
                why = reader.message(dest, url.rpartition("/")[2]).get("_why")
                reasons[url] = "" if why is None else why["text"]
    return reasons


def _fire_cells(fire: FireView, waits: str) -> tuple[float, tuple[str, ...]]:
    late = fire["tried"] - fire["planned"]
    failed = fire["outcome"] == State.ERR
    return fire["tried"], (
        moment(fire["nominal"]) + (" by hand" if fire["said"] == RUN else ""),
        fire["outcome"] or "-",
        duration(late) if late > ON_TIME else "",
        fire["url"].rpartition("/q/")[2],
        (fire["text"] or fire["cause"]) if failed else waits,
    )


def _miss_cells(miss: MissView) -> tuple[float, tuple[str, ...]]:
    first, to = moment(miss["from"]), moment(miss["to"])
    count = f"{miss['count']:,} or more" if miss["more"] else f"{miss['count']:,}"
    return miss["at"], (
        first if miss["count"] == 1 else f"{first} to {to}",
        f"missed {count}",
        "",
        "",
        miss["text"] or health.REASONS[miss["why"]],
    )


def ack(root: Root, names: list[str], *, every: bool) -> None:
    """Note that a person has seen what became of timers."""
    if every == bool(names):
        raise BadInput("name the timers, or say --all")
    if every:
        status = cast(TimersStatus, _ask(root, "status", None))
        names = [row["name"] for row in status["timers"] if row["trouble"]]
    for name in names:
        row = cast(TimerRow, _ask(root, "ack", name))
        trouble = row["trouble"]
        rest = f"; {health.in_words(trouble)}" if trouble else ""
        print(f"timer {term.plain(name)} is acknowledged{term.plain(rest)}")


# ---- rq timer validate


def validate(root: Root, paths: list[str]) -> None:
    """Say when files would fire; BadConfig says what is wrong with the first that is."""
    for name in paths:
        path = Path(name)
        why = refusal(path.name)
        if why:
            raise BadConfig(why)
        _tell_fires(root, path, parse(path))


def _tell_fires(root: Root, path: Path, timer: Timer) -> None:
    print(f"{term.plain(path)} is a timer: {rule(timer)}, to {timer.dest}")
    for why in all_lacks(root, timer):
        term.note(f"{path}: {why}; until it is there, this timer sends nothing")
    if timer.cron is None:
        print("it fires as soon as it is in timers/, and then each period after that")
        return
    now = time.time()
    past = with_rule(Past(), timer, now)
    for fire in following(timer, past, now, _FIRES):
        print(moments(fire.at, timer.cron.zone))
    print(f"time zones are those of {zones.of_tables(zones.tables())}")


def rule(timer: Timer) -> str:
    """Return when a timer fires, in words."""
    if timer.cron:
        return f"{timer.cron.expression} in {timer.cron.zone}"
    return f"every {duration(timer.period)}"


def moments(at: float, zone: str) -> str:
    """Return a moment in a zone, and in UTC."""
    there, utc = local(at, zone), local(at, "UTC")
    return there if there == utc else f"{there} = {utc}"


# ---- rq timer next, run, pause and resume


def upcoming(root: Root, count: int, names: list[str], *, as_json: bool) -> None:
    """Print the next fires of all timers, or of some."""
    request: Json = {"count": count, "names": names}
    rows = cast(Sequence[NextFire], _ask(root, "next", request))
    if as_json:
        term.print_json(rows)
        return
    now = time.time()
    term.table(
        ("TIMER", "FIRES", "WHERE IT IS", "IN UTC"),
        [
            (
                row["name"],
                term.from_now(row["at"] - now),
                row["local"],
                moment(row["at"]),
            )
            for row in rows
        ],
    )


def run(root: Root, names: list[str]) -> None:
    """Send a message of each timer now."""
    for name in names:
        url = str(_ask(root, "run", name))
        print(f"timer {term.plain(name)}: sent {url.replace(*_OF_FLOWS)}")


def pause(root: Root, names: list[str]) -> None:
    for name in names:
        _ask(root, "pause", name)
        print(f"timer {term.plain(name)} is paused")


def resume(root: Root, names: list[str]) -> None:
    for name in names:
        _say_when(name, cast(TimerRow, _ask(root, "resume", name)))


_DEEDS: Mapping[str, tuple[Callable[[Root, list[str]], None], str]] = {
    "run": (run, "send a message now, beside the beat"),
    "pause": (pause, "let them fire no more"),
    "resume": (resume, "let them fire again; what was missed is over"),
}


def accept(root: Root, name: str) -> None:
    """Let a timer fire that the Ruby RQ left."""
    row = cast(TimerRow | None, _ask(root, "accept", name))
    if row is None:
        print(f"timer {term.plain(name)} goes on once RQ can read its file")
    else:
        _say_when(name, row)


def _say_when(name: str, row: TimerRow) -> None:
    due = row.get("due")
    when = "" if due is None else f", and fires {term.from_now(due - time.time())}"
    print(f"timer {term.plain(name)} goes on{when}")


def _ask(root: Root, command: str, about: Json) -> Json:
    try:
        reply = client.ask_timers(root.timers_socket, command, about, _TIMEOUT)
    except Unreachable:
        place.demand_running(root)
        raise
    return cast(Json, client.demanded(reply))
