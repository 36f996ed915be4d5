"""A job in one file: a function with `@job`, what it runs on, and its packages."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, overload

from rq import config, days
from rq.errors import BadInput
from rq.spark import arguments, duck, failures, functions, packages, scratch
from rq.spark import session as sessions
from rq.spark.packages import Requirements, Tell
from rq.spark.work import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Function = Callable[[Work], object]


class Job:
    """A function over the messages of a batch, and how its session is made."""

    def __init__(
        self,
        function: Function,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        engine: str | None = None,
    ) -> None:
        said = {"master": master, "conf": conf, "engine": engine}
        arguments.demand("@job", arguments.JOB, said.items())
        self.function = function
        self.master = master
        self.conf = conf or {}
        self.__doc__ = function.__doc__
        self._engine = engine
        self.digest = ""  # of its script
        self.packages: Path | None = None  # a directory of its own ones
        self.requirements: Requirements | None = None  # which they are

    @property
    def engine(self) -> str:
        """What it runs on; what the queue's config says comes before the script."""
        return os.environ.get("RQ_SPARK_ENGINE") or self._engine or functions.SPARK

    def demand(self) -> None:
        """Raise BadInput or BadConfig unless what it runs on is there."""
        engines = (functions.SPARK, functions.DUCKDB)
        if self.engine not in engines:
            names = " nor ".join(engines)
            raise BadInput(f"@job(engine={self.engine!r:.40}) is neither {names}")
        if self.engine == functions.DUCKDB:
            duck.demand()
        else:
            sessions.demand_spark()
        functions.F.use(self.engine)

    def session(self) -> SparkSession:
        """Start its session; what the queue's config says comes before the script."""
        master = os.environ.get("RQ_SPARK_MASTER") or self.master
        name = getattr(self.function, "__name__", "job")
        spark = sessions.session(f"rq {name}", master=master, conf=self.conf)
        if self.packages is not None and not spark.sparkContext.master.startswith(
            "local"
        ):
            packages.send(spark, self.packages)
        return spark


@overload
def job(function: Function) -> Job: ...
@overload
def job(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    engine: str | None = None,
) -> Callable[[Function], Job]: ...
def job(
    function: Function | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    engine: str | None = None,
) -> Job | Callable[[Function], Job]:
    """Make a job of a function: `@job`, `@job(master="local[2]")`, or without Spark
    `@job(engine="duckdb")`."""
    if function is not None:
        return Job(function)
    return lambda function: Job(function, master, conf, engine)


def load(script: Path, tell: Tell) -> Job:
    """Return the one job of a script, whose packages are there then; `tell` hears what
    takes a while."""
    if not script.is_file():
        raise BadInput(f"there is no script {script}")
    own, root = None, config.find_root(None)
    scratch.demand(root.spark)
    if wanted := packages.of_script(script):
        own = packages.ready(root, wanted, tell)
        packages.use(own)
    try:
        names = runpy.run_path(str(script), run_name="rq_spark_script")
    except ModuleNotFoundError as error:
        if error.name == "pyspark":
            sessions.demand_spark()  # it says how to get it
        raise
    except Exception as error:
        if type(error).__module__.startswith("pyspark."):
            raise BadInput(
                f"{script} asks something of Spark before its job has begun: let the function "
                f"with @job do it ({failures.first_line(error)})"
            ) from error
        raise
    by_id = {id(value): value for value in names.values() if isinstance(value, Job)}
    jobs = list(by_id.values())
    if len(jobs) != 1:
        raise BadInput(f"{script} has {len(jobs)} functions with @job: it needs one")
    jobs[0].digest = days.digest(script)
    jobs[0].demand()
    jobs[0].packages, jobs[0].requirements = own, wanted
    return jobs[0]


def is_outdated(job: Job, script: Path) -> bool:
    """Whether a script asks for other packages by now than those that its job was loaded
    with. What cannot be read is for the process that loads it next to tell."""
    try:
        return packages.of_script(script) != job.requirements
    except BadInput:
        return True
    except OSError:  # the queue looks at the script itself
        return False
