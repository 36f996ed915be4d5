"""The script of the queue `spark-history`: one round, told as it goes on."""

from __future__ import annotations

import sys

from rq import config, script
from rq.errors import RQError
from rq.pipe import Verb
from rq.spark.progress import Progress
from rq.spark.session import demand_spark, session

_AGAIN = 60  # seconds, when another round is at work


def main() -> int:
    """Run a round for the queue; return the exit code."""
    try:
        demand_spark()
        return _round()
    except RQError as error:
        script.say(Verb.ERR, str(error))
        return 1


def _round() -> int:
    """Run a round in a Spark of its own."""
    from rq.spark import history

    spark = session("rq-history")
    told = Progress(_tell, sys.exit)
    told.start()
    told.watch(spark)
    try:
        done = history.run_round(spark, config.find_root(None), tell=_tell)
        script.say(Verb.DONE, history.sentence(done))
    except history.AtWork as error:
        script.say(Verb.LATER, f"{_AGAIN}-{error}")
    finally:
        told.stop()
        spark.stop()
    return 0


def _tell(text: str) -> None:
    script.say(Verb.RUN, text)


if __name__ == "__main__":
    sys.exit(main())
