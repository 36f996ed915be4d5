"""Scripts of 0.1 s a slot: those of the queue itself, and the same in tasks of Spark.

.venv/bin/python test/bench/spark_work.py [MESSAGES] [SLOTS]

Goal: Spark's slots end 70 % of what local ones do. Each slot's first message and its last
are what is measured between: the start of Spark is not.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent), str(HERE)]

import bench  # noqa: E402 - the path above leads to them
import rest  # noqa: E402

from rq.layout import Root  # noqa: E402
from rq.rpc import client  # noqa: E402

SCRIPT = "#!/bin/sh\nsleep 0.1\necho done >&3\n"
FAST = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
LOOK = 0.01


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    slots = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    with tempfile.TemporaryDirectory(prefix="rq-bench-spark-") as scratch:
        here = speed(Path(scratch) / "here", messages, slots, contextlib.nullcontext)
        print(f"{here:8.1f} messages/s in {slots} slots of the queue")
        there = speed(Path(scratch) / "there", messages, slots, None)
        print(f"{there:8.1f} messages/s in {slots} tasks of Spark: {there / here:.0%}")


def speed(where: Path, messages: int, slots: int, idle: object) -> float:
    """Return messages a second, from the first that has ended to the last."""
    where.mkdir()
    local = idle is not None
    settings = {"workers": slots} if local else {"workers": 0, "pull": {}}
    root = bench.make_root(where, script=SCRIPT, **settings)
    work = idle() if callable(idle) else None
    with bench.process(root, "q"), rest.web(root) as port:
        path = root.queue("q").socket
        bench.crowd(path, 8, messages)
        with work or spark(where, port, slots):
            return measured(path, messages)


def measured(path: Path, messages: int) -> float:
    with client.Connection(path) as line:

        def ended() -> int:
            return int(line.ask("detail")[1]["counts"]["done"])

        while (first := ended()) == 0:
            time.sleep(LOOK)
        begun = time.perf_counter()
        while (last := ended()) < messages:
            time.sleep(LOOK)
        return (last - first) / (time.perf_counter() - begun)


@contextlib.contextmanager
def spark(where: Path, port: int, slots: int) -> Iterator[None]:
    """Let tasks of Spark work on the queue as long as the block runs."""
    script = where / "script"
    script.mkdir()
    (script / "run").write_text(SCRIPT)
    (script / "run").chmod(0o755)
    (script / "config.json").write_text('{"nice": 0}')  # as the queue's own
    root = Root(where / "driver")
    words = ["spark", "work", f"http://127.0.0.1:{port}/q/q", "--slots", str(slots)]
    words += ["--script", str(script)]
    env = {"RQ_SPARK_MASTER": f"local[{slots}]", "RQ_SPARK_CONF": json.dumps(FAST)}
    process = subprocess.Popen(
        [sys.executable, "-m", "rq.cli", "--root", str(root.path), *words],
        env={**os.environ, **env},
        cwd=HERE.parent.parent,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
