"""`rq spark backfill`: days of a queue's tables, made again from the messages they came from.

Each day is a process of its own, started as the queue's script is; this one says what each
tells, and ends them when it is ended. What a day needs to be whole is in `rq.spark.again`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime

from rq import config, days
from rq.cli import ENDED_IN_ERR, OK, place, term
from rq.config.settings import QueueConfig
from rq.days import TO_MAKE, Days, DayView, Standing
from rq.errors import BadInput, Busy, RQError
from rq.layout import Root
from rq.scripts import environment

_SPAN = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.\.(\d{4}-\d\d-\d\d))?")
_MOST = 3660  # days
_LOOKS = 10_000_000  # messages that are looked for: all
_LOOK = 0.5  # seconds between looks whether it was cancelled
_PATIENCE = 30.0  # seconds for what was cancelled to end


def backfill(root: Root, words: list[str]) -> int:
    """Make days again, or say how they stand."""
    args = _parser().parse_args(words)
    queue = place.queue_dir(root, args.queue)
    settings = config.read_queue(queue)
    if settings.user:
        raise BadInput(f"{queue.name} has a user of its own: its jobs do not run so")
    noted = Days(root, queue.name)
    _demand(noted, queue.name)
    if args.cancel:
        return _cancel(noted, queue.name)
    script = root.path / settings.script
    views = noted.views(span(args.day), days.digest(script), _LOOKS)
    chosen = _chosen(noted, views, args.again)
    _print(views, chosen, args)
    if args.dry_run or not chosen:
        return OK
    command = _Command(root, noted, queue.name, settings)
    return OK if command.run(chosen, args.at_once) else ENDED_IN_ERR


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "spark backfill",
        "Make days of a queue's tables again from the messages they were made of, by the\n"
        "script as it is: those that are stale or have failed. Said once more, it goes on\n"
        "where it was ended.",
    )
    parser.add_argument("queue", metavar="QUEUE")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--day", metavar="DAY[..DAY]", help="2026-11-01..2026-11-07")
    term.flag(what, "--cancel", "end what makes days of the queue again now, anywhere")
    term.flag(parser, "--dry-run", "say how the days stand, and do nothing")
    term.flag(parser, "--again", "also those that are done")
    parser.add_argument(
        "--at-once",
        metavar="N",
        type=term.at_least(1),
        default=1,
        help="days at a time (1)",
    )
    term.json_option(parser)
    return parser


def span(text: str) -> list[str]:
    """Return the days that are meant; BadInput."""
    match = _SPAN.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        first, last = match[1], match[2] or match[1]
        number = (date.fromisoformat(last) - date.fromisoformat(first)).days + 1
    except ValueError:
        raise BadInput(
            f"--day {text!r:.60}: say a day or two, as 2026-11-01..2026-11-07"
        ) from None
    if not 1 <= number <= _MOST:
        raise BadInput(f"--day {text}: from the first to the last, {_MOST:,} at most")
    return days.between(first, last)


def _demand(noted: Days, queue: str) -> None:
    if noted.span() is None:
        raise BadInput(
            f'no job of {queue} has written a table by days yet: q.write(…, by="day") does, '
            "and what an RQ before this one wrote is not known by its days"
        )


def _cancel(noted: Days, queue: str) -> int:
    """End the commands that make days of a queue again; each day stays as it was, unless
    it is decided."""
    running = noted.cancel()
    until = time.monotonic() + _PATIENCE
    while noted.running() and time.monotonic() < until:
        time.sleep(_LOOK)
    if left := noted.running():
        raise Busy(f"{', '.join(left)}: still being made; it ends when that is decided")
    ended = ", ".join(running) or "no day was being made again"
    print(f"{queue}: cancelled: {ended}")
    return OK


def _chosen(noted: Days, views: Sequence[DayView], again: bool) -> list[str]:
    """Return the days to make; of an earlier `--again` that was ended, those it has not
    come to."""
    done = [view["day"] for view in views if view["state"] == Standing.DONE]
    if again:
        left = noted.wanted() & set(done)
        wanted = left or set(done)
        noted.want(wanted)
    else:
        wanted = set()
    return [v["day"] for v in views if v["state"] in TO_MAKE or v["day"] in wanted]


def _print(
    views: Sequence[DayView], chosen: Sequence[str], args: argparse.Namespace
) -> None:
    if args.json:
        term.print_json({"days": views, "to_make": chosen})
        return
    head = ("DAY", "STATE", "BATCHES", "MESSAGES", "ROWS", "WHY")
    names = ("day", "state", "batches", "messages", "rows", "why")
    rows = [[view[name] for name in names] for view in views]  # type: ignore[literal-required]
    term.table(head, rows)
    away = sum(view["state"] == Standing.UNAVAILABLE for view in views)
    if away:
        print(f"{away} cannot be made again: messages are kept for `keep_sources`")
    print(
        f"{len(chosen)} of {term.number(len(views), 'day')} to make again", flush=True
    )


class _Command:
    """The processes that make days again."""

    def __init__(
        self, root: Root, noted: Days, queue: str, settings: QueueConfig
    ) -> None:
        self._queue, self._noted = queue, noted
        self._cancels = noted.cancels()  # as often it was said before this began
        # What the versions of tables say of the command that has made a day again.
        self._name = f"{datetime.now(UTC):%Y%m%d.%H%M%S}.{os.getpid()}"
        self._is_cancelled = False
        env = environment.fixed(root.path, config.read_root(root), settings)
        self._env = {**env, "PYTHONPATH": str(place.CHECKOUT)}
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = threading.Event()
        self._turn = threading.Lock()

    def run(self, chosen: Sequence[str], at_once: int) -> bool:
        """Make days again, so many at a time; return whether all were."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._end())
        print(f"backfill {self._name}", flush=True)
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,), daemon=True)
        watch.start()
        with ThreadPoolExecutor(at_once) as pool:
            finished = sum(pool.map(self._make, chosen))
        over.set()
        if self._is_cancelled:
            print(f"cancelled: {_made_again(finished, len(chosen))}")
        elif self._ended.is_set():
            remain = len(chosen) - finished
            are = "is" if remain == 1 else "are"
            left = f"{term.number(remain, 'day')} {are} left"
            print(f"ended: {left}, which the same command goes on with")
        else:
            print(_made_again(finished, len(chosen)))
        return finished == len(chosen)

    def _watch(self, over: threading.Event) -> None:
        """End all when another command, or a page, says so."""
        while not over.wait(_LOOK):
            with contextlib.suppress(RQError):  # another one writes
                if self._noted.cancels() > self._cancels:
                    self._is_cancelled = True
                    self._end()
                    return

    def _make(self, day: str) -> bool:
        with self._turn:
            if self._ended.is_set():
                return False
            about = [self._queue, day, self._name, str(self._cancels)]
            words = [sys.executable, "-m", "rq.spark.again", *about]
            process = subprocess.Popen(
                words, env=self._env, stdout=subprocess.PIPE, text=True,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
            self._running.add(process)
        for line in _lines(process):
            print(f"{day}  {line}", flush=True)
        with self._turn:
            self._running.discard(process)
        return process.wait() == 0

    def _end(self) -> None:
        """End all processes: what they have decided is carried out by the next."""
        self._ended.set()
        for process in list(self._running):
            process.terminate()


def _made_again(finished: int, days: int) -> str:
    verb = "was" if finished == 1 else "were"
    return f"{finished} of {term.number(days, 'day')} {verb} made again"


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    with process.stdout:
        yield from (line.rstrip("\n") for line in process.stdout)
