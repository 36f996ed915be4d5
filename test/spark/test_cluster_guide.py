"""The page about clusters: its commands start one that is closed, use it, and stop it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest
from harness.checkout import CHECKOUT
from harness.documents import GUIDE, examples_of
from harness.ports import free_port
from harness.spark_cluster import FAST_JAVA
from harness.spark_jobs import tools

from rq.spark import java, session

PATIENCE = 200  # seconds, for three JVMs on a busy machine


@pytest.mark.slow
def test_the_commands_of_the_page_about_clusters_do_what_it_says(java_home, tmp_path):
    start = "".join(examples_of("sh", "cluster", GUIDE))
    env = {
        **os.environ,
        **session.environment(java.find(os.environ)),
        "PATH": f"{tools(tmp_path)}:{_commands()}:{os.environ['PATH']}",
        "RQ_ROOT": str(tmp_path / "root"),
        "MASTER_PORT": str(free_port()),
        "SPARK_DAEMON_JAVA_OPTS": FAST_JAVA,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    (tmp_path / "root").mkdir()
    try:
        done = subprocess.run(
            ["timeout", str(PATIENCE), "bash", "-euc", start],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"run 1000 rows by spark://127.0.0.1:{env['MASTER_PORT']}" in done.stdout
        assert (tmp_path / "cluster/spark.conf").stat().st_mode & 0o077 == 0
        _, gone = psutil.wait_procs(_started(tmp_path), 30)
        assert gone == []
    finally:
        for process in _started(tmp_path):
            process.kill()


def _commands() -> str:
    """Return where `rq` and `spark-class` are."""
    import pyspark

    return f"{CHECKOUT / 'bin'}:{Path(pyspark.__file__).parent / 'bin'}"


def _started(place: Path) -> list[psutil.Process]:
    """Return the processes of a cluster that its commands have started."""
    pids = [int(path.read_text()) for path in place.glob("cluster/*.pid")]
    return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
