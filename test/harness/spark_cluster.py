"""A Spark cluster of a test's own: a master and two workers on loopback, each a process.

The workers have different addresses, for Spark takes those for different hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from harness.checkout import CHECKOUT
from harness.ports import free_port
from harness.waiting import wait_until
from rq.spark import java, session

HOSTS = ("127.0.0.1", "127.0.0.2")
FAST_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
STARTED_IN = 120.0  # seconds, on a busy machine
_CLASS = "org.apache.spark.deploy"


@dataclass
class Cluster:
    """A cluster that runs."""

    url: str
    place: Path
    members: dict[str, Member] = field(default_factory=dict)  # master, worker1, worker2

    def environment(self, root: Path) -> dict[str, str]:
        """Return what a driver is started with, so that tasks can import RQ."""
        here = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "test")])
        conf = {
            "spark.executorEnv.PYTHONPATH": here,
            "spark.executorEnv.RQ_ROOT": str(root),
            "spark.driver.extraJavaOptions": FAST_JAVA,
            "spark.executor.extraJavaOptions": FAST_JAVA,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": "2",
        }
        return {
            **os.environ,
            "PYTHONPATH": here,
            "RQ_ROOT": str(root),
            "RQ_SPARK_MASTER": self.url,
            "RQ_SPARK_CONF": json.dumps(conf),
        }


@contextlib.contextmanager
def cluster_at(place: Path) -> Iterator[Cluster]:
    """Run a master and two workers until the block ends."""
    port, page = free_port(), free_port()
    url = f"spark://{HOSTS[0]}:{port}"
    cluster = Cluster(url, place)
    with contextlib.ExitStack() as stack:
        address = ["--host", HOSTS[0], "--port", str(port)]
        master = [f"{_CLASS}.master.Master", *address, "--webui-port", str(page)]
        cluster.members["master"] = Member(place, "master", HOSTS[0], master)
        stack.callback(cluster.members["master"].end)
        wait_until(lambda: _alive(page) == 0, STARTED_IN)
        for number, host in enumerate(HOSTS, 1):
            sizes = ["--cores", "1", "--memory", "600m", "--webui-port", "0"]
            home = ["--work-dir", str(place / f"work{number}")]
            worker = [f"{_CLASS}.worker.Worker", "--host", host, *sizes, *home, url]
            name = f"worker{number}"
            cluster.members[name] = Member(place, name, host, worker)
            stack.callback(cluster.members[name].end)
        wait_until(lambda: _alive(page) == len(HOSTS), STARTED_IN)
        yield cluster


def _alive(page: int) -> int | None:
    """Return how many workers the master knows; None while it does not answer."""
    with (
        contextlib.suppress(OSError, ValueError, KeyError),
        urllib.request.urlopen(f"http://{HOSTS[0]}:{page}/json/", timeout=5) as one,
    ):
        return int(json.load(one)["aliveworkers"])
    return None


class Member:
    """A process of a cluster."""

    def __init__(self, place: Path, name: str, host: str, words: list[str]) -> None:
        self._log = place / f"{name}.log"
        self._host, self._words = host, words
        self.start()

    def start(self) -> None:
        """Start it, also again, at the same address."""
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        env = {
            **os.environ,
            **session.environment(java.find(os.environ)),
            "SPARK_LOCAL_IP": self._host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": FAST_JAVA,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [program, *self._words],
                env=env,
                cwd=self._log.parent,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9 it and its executors."""
        family = psutil.Process(self._process.pid)
        for each in [*family.children(recursive=True), family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.wait()

    def end(self) -> None:
        end(self._process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started, by their ids."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        found = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for one in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(found, 30)
