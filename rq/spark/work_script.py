"""The script of the queue `spark-work`: a shift of slots on Spark for a queue of this root.

The sender of a message says which queue, how many slots, and for how long; what runs
there is the script of that queue, which runs anyway.
"""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rq import config, names
from rq.errors import BadInput, NoSuchQueue, RQError
from rq.layout import Root
from rq.scripts import python as script
from rq.scripts.pipe import Verb
from rq.spark import queue_door
from rq.spark.last_word import LastWord, begin_watch
from rq.spark.session import close, demand_spark, session
from rq.words import moments
from rq.work import definition, options

if TYPE_CHECKING:
    from rq.spark.lease_work import Work

QUEUE = "spark-work"
TOKEN = "spark-work.token"  # in config/: for a web that demands one
_SHIFT = "1h"
_AGAIN = 60  # seconds until the next try, when what failed may pass


@dataclass(frozen=True, slots=True)
class Shift:
    """What a message asks for."""

    queue: str
    slots: int
    seconds: float


def main() -> int:
    """Work for a shift; return the exit code."""
    last, cut, stop = LastWord(), threading.Event(), threading.Event()

    def end(*_: object) -> None:
        cut.set()
        stop.set()

    signal.signal(signal.SIGTERM, end)
    try:
        shift = parse_shift(script.params())
        _work(shift, last, stop)
    except RQError as error:
        return _failed(last, error)
    if not cut.is_set():
        last.say(Verb.DONE, f"worked on {shift.queue} for {shift.seconds:.0f} s")
    # Without a word if none was said: the queue knows why it has sent TERM.
    return 0 if last.is_said else 1


def _failed(last: LastWord, error: RQError) -> int:
    if error.kind in queue_door.AGAIN:
        last.say(Verb.RESEND, f"{_AGAIN}-{error}")
        return 0
    last.say(Verb.ERR, str(error))
    return 1


def parse_shift(params: tuple[str, str, str, str]) -> Shift:
    """Return what the params of a message ask for; BadInput names the wrong one."""
    queue, slots, seconds, _ = params
    if not names.is_queue_name(queue):
        raise BadInput(f"param1 names the queue to work on: {queue!r:.60} is none")
    number = int(slots) if slots.isascii() and slots.isdigit() else 0
    if slots and not 1 <= number <= options.MOST_SLOTS:
        raise BadInput(
            f"param2 is the number of slots, 1 to {options.MOST_SLOTS}: not {slots!r:.60}"
        )
    return Shift(queue, number or 1, moments.duration(seconds or _SHIFT))


def _work(shift: Shift, last: LastWord, stop: threading.Event) -> None:
    root = config.find_root(None)
    if not root.queue(shift.queue).config.exists():
        raise NoSuchQueue(f"param1: there is no queue {shift.queue} here")
    user = config.read_queue(root.queue(shift.queue)).user
    definition.check_user(user, f"queue {shift.queue}")
    demand_spark()
    begin_watch(root, QUEUE, last)
    from rq.spark import lease_work

    wanted = _wanted(root, shift)
    script.say(Verb.RUN, "starting Spark")
    spark = session(f"rq-work {shift.queue}")
    try:
        script.say(Verb.RUN, f"{shift.slots} slots work on {shift.queue}")
        ear = lease_work.Ear(stop, lambda text: script.say(Verb.RUN, text))
        lease_work.run(spark, wanted, ear)
    finally:
        close(spark)


def _wanted(root: Root, shift: Shift) -> Work:
    from rq.spark.lease_work import Work

    token = root.config_dir / TOKEN
    return Work(
        url=f"{config.read_root(root).base_url}q/{shift.queue}",
        slots=shift.slots,
        seconds=shift.seconds,
        script=_script(root, shift.queue),
        token=options.read_token(token) if token.exists() else None,
        insecure=False,
        label=f"spark-{options.label(None)}"[:48],
    )


def _script(root: Root, queue: str) -> Path | None:
    """Return the directory of a queue's script; None: the queue may share it."""
    directory = (root.scandir / queue).resolve()
    return directory if (directory / "run").is_file() else None


if __name__ == "__main__":
    sys.exit(main())
