"""What Java has learned of Spark's classes, kept from one start to the next.

A session loads some 12,000 classes out of 300 jars and verifies each: half of what its
start costs. Java can keep the result (class data sharing): a file beside pyspark, made
when Spark is installed and mapped by each Java that starts. Java looks itself whether
jars, class path and version are those of the file, and does without it if they are not.
Of a Spark that is another now the file is of no use to any start: it goes when the next
one is made.
Only that it is whole it does not look; `Java.kept_classes` does. So the file may be
missing, out of date, cut or removed at any time: a start takes longer then, and nothing
else changes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rq.proc import locks
from rq.spark import session as sessions
from rq.spark.java import Java

_PATIENCE = 600.0  # seconds, on a busy machine
_BRIEF = "-XX:TieredStopAtLevel=1"  # to compile well what runs once takes longer
_ONE_TASK = {"spark.sql.shuffle.partitions": "1"}


def keep(usable: Java) -> bool:
    """Make the file for a Java, whole or not at all; return whether it is there. It takes
    about a minute of one core, and 170 MB."""
    try:
        turn = locks.lock_waiting(usable.classes.with_name("rq-classes.lock"))
    except OSError:
        return usable.kept_classes() is not None
    try:
        if usable.kept_classes() is None:
            _make(usable.classes)
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        os.close(turn)
    return True


def _make(classes: Path) -> None:
    new = classes.with_name("rq-classes.new")
    new.unlink(missing_ok=True)  # of one that was killed
    try:
        with tempfile.TemporaryDirectory(prefix="rq-classes-") as root:
            _learn(new, root)
        new.chmod(0o644)
        os.sync()  # Java does not see that parts of a file never reached the disk
        new.rename(classes.with_name(f"{classes.name}-{new.stat().st_size}.jsa"))
        _forget_others(classes)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _forget_others(classes: Path) -> None:
    """Remove what was kept for another Spark; Javas of this one have files of their own."""
    of_this_spark = classes.name.rpartition("-")[0]
    for path in classes.parent.glob("rq-classes-*.jsa"):
        if not path.name.startswith(f"{of_this_spark}-"):
            path.unlink(missing_ok=True)


def _learn(new: Path, root: str) -> None:
    options = {"RQ_ROOT": root, "RQ_SPARK_CONF": json.dumps(_ONE_TASK)}
    options["SPARK_SUBMIT_OPTS"] = f'{_BRIEF} {sessions.KEEP}"{new}"'
    command = [sys.executable, "-m", "rq.spark.classes"]
    env = {**os.environ, **options}
    subprocess.run(command, env=env, check=True, timeout=_PATIENCE, capture_output=True)


def main() -> int:
    """Do in small what most jobs do, so that Java learns what they need."""
    spark = sessions.session("rq spark classes", master="local[1]")
    lines = f"{os.environ['RQ_ROOT']}/lines"
    spark.range(1).selectExpr("id", "cast(id AS string) AS name").write.json(lines)
    spark.read.json(lines).groupBy("name").count().orderBy("name").collect()
    sessions.close(spark, _PATIENCE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
