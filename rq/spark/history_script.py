"""The script of the queue `spark-history`: one round of the history, with its progress.

A round may be cut off at any instant, so its end need not be waited for: it ends at TERM,
and by itself when its queue stops.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback

from rq import config
from rq.errors import RQError
from rq.layout import Root
from rq.scripts import python as script
from rq.scripts.pipe import Verb
from rq.spark.last_word import LastWord, begin_watch
from rq.spark.progress import OnSpark, Progress
from rq.spark.session import close, demand_spark, kill_java, session

QUEUE = "spark-history"
_AGAIN = 60  # seconds until the next try, when another round runs


def main() -> int:
    """Run a round for the queue; return the exit code."""
    last = LastWord()
    signal.signal(signal.SIGTERM, lambda *_: _leave(last))
    try:
        demand_spark()
        root = config.find_root(None)
        begin_watch(root, QUEUE, last)
        return _round(root, last)
    except RQError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)  # into the log of the message
        last.say(Verb.ERR, str(error))
        return 1


def _round(root: Root, last: LastWord) -> int:
    """Run a round in a Spark of its own."""
    from rq.spark import rounds

    spark = session("rq-history")
    progress = Progress(_tell, lambda why: _give_up(last, why))
    progress.start()
    progress.watch(OnSpark(spark))
    try:
        done = rounds.run_round(spark, root, tell=_tell)
        progress.stop()  # progress that is reported after the last word would hide it
        last.say(Verb.DONE, rounds.sentence(done))
    except rounds.AtWork as error:
        last.say(Verb.LATER, f"{_AGAIN}-{error}")
    except RQError:
        if not progress.given_up:
            raise
        last.say(Verb.RESEND, f"{_AGAIN}-{progress.given_up}")
    finally:
        progress.stop()
        close(spark)
    return 0


def _tell(text: str) -> None:
    script.say(Verb.RUN, text)


def _give_up(last: LastWord, why: str) -> None:
    """End a round that does not come back from what it waits for."""
    last.say(Verb.RESEND, f"{_AGAIN}-{why}")
    _leave(last)


# ---- an end before the end


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
