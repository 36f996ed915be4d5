"""The script of the queue `spark-history`: one round of the history, with its progress.

A round may be cut off at any instant, so its end need not be waited for: it ends at TERM,
and by itself when its queue stops.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback

from rq import client, config, script
from rq.errors import RQError
from rq.layout import Root
from rq.pipe import Verb
from rq.spark.progress import Progress
from rq.spark.session import close, demand_spark, kill_java, session

QUEUE = "spark-history"
_AGAIN = 60  # seconds until the next try, when another round runs
_LOOK = 1.0  # seconds between looks at the queue


class LastWord:
    """The last word to the queue: the first thread that has one says it, the others not."""

    def __init__(self) -> None:
        self._free = threading.Lock()

    @property
    def is_said(self) -> bool:
        return self._free.locked()

    def say(self, verb: Verb, text: str) -> bool:
        """Say it, unless it was said; return whether it was said now."""
        if not self._free.acquire(blocking=False):
            return False
        script.say(verb, text)
        return True


def main() -> int:
    """Run a round for the queue; return the exit code."""
    last = LastWord()
    signal.signal(signal.SIGTERM, lambda *_: _leave(last))
    try:
        demand_spark()
        root = config.find_root(None)
        threading.Thread(target=_watch, args=(root, last), daemon=True).start()
        return _round(root, last)
    except RQError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)  # into the log of the message
        last.say(Verb.ERR, str(error))
        return 1


def _round(root: Root, last: LastWord) -> int:
    """Run a round in a Spark of its own."""
    from rq.spark import history

    spark = session("rq-history")
    progress = Progress(_tell)
    progress.start()
    progress.watch(spark)
    try:
        done = history.run_round(spark, root, tell=_tell)
        progress.stop()  # progress that is reported after the last word would hide it
        last.say(Verb.DONE, history.sentence(done))
    except history.AtWork as error:
        last.say(Verb.LATER, f"{_AGAIN}-{error}")
    finally:
        progress.stop()
        close(spark)
    return 0


def _tell(text: str) -> None:
    script.say(Verb.RUN, text)


# ---- an end before the end


def _watch(root: Root, last: LastWord) -> None:
    """End when the queue stops, which would wait until its grace is over."""
    socket = root.queue(QUEUE).socket
    pause = threading.Event()
    while not pause.wait(_LOOK):
        try:
            stops = client.demanded(client.ask(socket, "detail"))["stopping"]
        except RQError:
            continue  # the next owner of the queue ends this process
        if stops and last.say(Verb.LATER, "0-cut short by a stop of the queue"):
            # To the main thread, lest it hear of the end of Java before we are through.
            os.kill(os.getpid(), signal.SIGTERM)


def _leave(last: LastWord) -> None:
    """End this process and its Java, whatever they are at.

    Without a word if none was said: the queue knows why it has sent TERM.
    """
    try:
        kill_java()
    finally:
        # Not by an exception: it would be taken for one of the round.
        os._exit(0 if last.is_said else 1)


if __name__ == "__main__":
    sys.exit(main())
