"""How fast messages are leased and finished over HTTP, beside beanstalkd on this disk."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench
import programs
import rest

from rq.rpc import client

TOTAL = int(os.environ.get("RQ_BENCH_MESSAGES", "20000"))
SINGLE = max(1, TOTAL // 20)  # of what is done one by one
PLACE = "/api/v1/queues/q/leases"
BULK = 100

Work = Callable[[int], int]  # takes at most so many messages, ends them, says how many


def main() -> None:
    only = sys.argv[1] if len(sys.argv) > 1 else None
    with bench.disks(only) as disks:
        for disk in disks:
            print(f"\n{disk.name}")
            of_rq(disk.path)
            of_beanstalkd(disk.path)


def of_rq(where: Path) -> None:
    root = bench.make_root(where, workers=0, pull={"max": 100_000})
    with bench.process(root, "q"), rest.web(root) as port:
        bench.crowd(root.queue("q").socket, 64, TOTAL + SINGLE)
        settle(root.queue("q").socket)
        with contextlib.closing(Worker(port)) as worker:
            show(f"RQ over HTTP, {BULK} at a time", worker.bulk, BULK, TOTAL)
            settle(root.queue("q").socket)
            show("RQ over HTTP, one by one", worker.single, 1, SINGLE)


def settle(path: Path) -> None:
    """Wait until all folders are made."""
    with client.Connection(path) as line:
        while line.ask("detail")[1]["lag"]:
            time.sleep(0.05)


class Worker:
    """Leases and finishes over one connection that stays open."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port)

    def close(self) -> None:
        self._line.close()

    def bulk(self, number: int) -> int:
        leases = self._ask(PLACE, {"count": number})["leases"]
        ends = [{"token": lease["token"], "word": "done"} for lease in leases]
        results = self._ask(f"{PLACE}/finish", {"finishes": ends})["results"]
        assert all(row["state"] == "done" for row in results), results
        return len(results)

    def single(self, number: int) -> int:
        [lease] = self._ask(PLACE, {"count": number})["leases"]
        ended = self._ask(f"{PLACE}/{lease['token']}/finish", {"word": "done"})
        assert ended["state"] == "done", ended
        return 1

    def _ask(self, path: str, request: dict[str, Any]) -> Any:
        body = json.dumps(request).encode()
        kind = {"Content-Type": "application/json"}
        self._line.request("POST", path, body, kind)
        reply = self._line.getresponse()
        data = reply.read()
        if reply.status != 200:
            raise SystemExit(f"refused: {reply.status} {data[:500]!r}")
        return json.loads(data)


# ---- beanstalkd


def of_beanstalkd(where: Path) -> None:
    if shutil.which("beanstalkd") is None:
        print("  beanstalkd is missing -> apt-get install beanstalkd")
        return
    (where / "beanstalkd").mkdir()
    with (
        programs.beanstalkd(where / "beanstalkd") as program,
        contextlib.closing(Tube(program.port)) as tube,
    ):
        show("beanstalkd put, one by one", tube.put, 1, SINGLE)
        show(f"beanstalkd put, {BULK} at a time", tube.put, BULK, TOTAL)
        show(f"beanstalkd reserve + delete, {BULK}", tube.work, BULK, TOTAL)
        show("beanstalkd reserve + delete, one", tube.work, 1, SINGLE)


class Tube:
    """A client of beanstalkd that sends many commands and then reads the answers."""

    def __init__(self, port: int) -> None:
        self._line = socket.create_connection(("127.0.0.1", port))
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._line.makefile("rb")

    def close(self) -> None:
        self._answers.close()
        self._line.close()

    def put(self, number: int) -> int:
        self._line.sendall(b"put 1024 0 60 1\r\nx\r\n" * number)
        for _ in range(number):
            self._expect(b"INSERTED")
        return number

    def work(self, number: int) -> int:
        self._line.sendall(b"reserve\r\n" * number)
        jobs = []
        for _ in range(number):
            _, job, size = self._expect(b"RESERVED")
            self._answers.read(int(size) + 2)
            jobs.append(job)
        self._line.sendall(b"".join(b"delete %b\r\n" % job for job in jobs))
        for _ in range(number):
            self._expect(b"DELETED")
        return number

    def _expect(self, word: bytes) -> list[bytes]:
        answer = self._answers.readline()
        if not answer.startswith(word):
            raise SystemExit(f"{answer!r} instead of {word!r}")
        return answer.split()


def show(text: str, work: Work, at_once: int, total: int) -> None:
    """Say how many messages a second are worked on."""
    begun, number = time.perf_counter(), 0
    took = []
    while number < total:
        before = time.perf_counter()
        ended = work(min(at_once, total - number))
        if not ended:
            raise SystemExit(f"only {number} of {total} messages came")
        number += ended
        took.append(time.perf_counter() - before)
    rate = number / (time.perf_counter() - begun)
    p50, p99 = (bench.percentile(took, share) * 1e3 for share in (0.5, 0.99))
    print(f"  {text:36}{rate:8.0f}/s   p50 {p50:.1f} ms  p99 {p99:.1f} ms a round")


if __name__ == "__main__":
    main()
