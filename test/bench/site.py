"""How fast pages and JSON are with 200 queues and a million messages on the disk."""

from __future__ import annotations

import http.client
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.web_server import Served, served

from rq.rpc import wire

QUEUES = 200
MESSAGES = int(os.environ.get("RQ_BENCH_MESSAGES", "1000000"))
EACH = 20  # messages of each other queue
WINDOW = 1000  # requests on their way
LARGE = "large"
PAGES = (
    "/",
    "/overview.json",
    "/q.json",
    "/q.txt",
    f"/q/{LARGE}",
    f"/q/{LARGE}?state=que",
    f"/q/{LARGE}?state=done",
    f"/q/{LARGE}/queue.json",
    f"/q/{LARGE}.json",
    f"/q/{LARGE}.txt",
    f"/q/{LARGE}/done.json",
    "/timers",
    "/system",
    "/readyz",
)


def main() -> None:
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("RQ_BENCH_DIR")) as path,
        served(Path(path), forked=False) as web,
    ):
        make(web)
        msg_id = web.send(LARGE)
        settle(web)
        print(f"{MESSAGES} messages in {QUEUES} queues, all folders made")
        for page in (*PAGES, f"/q/{LARGE}/{msg_id}", f"/q/{LARGE}/{msg_id}.json"):
            show(web, page)


def make(web: Served) -> None:
    """Make the queues, paused, and their messages."""
    names = [LARGE, *(f"other{number}" for number in range(1, QUEUES))]
    for name in names:
        web.queue("echo done >&3", name)
        web.daemon.ask("pause_queue", name)
    for name in names[1:]:
        fill(web, name, EACH)
    fill(web, LARGE, MESSAGES - EACH * len(names[1:]))


def fill(web: Served, name: str, total: int) -> None:
    request = wire.request(
        "create_message", json.dumps({"dest": name, "param1": "x" * 50}).encode()
    )
    frames = wire.Frames()
    sent = answered = 0
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(web.daemon.root.queue(name).socket))
        while answered < total:
            more = min(WINDOW - (sent - answered), total - sent)
            line.sendall(request * more)
            sent += more
            answered += len(frames.feed(line.recv(1 << 20)))


def settle(web: Served) -> None:
    """Wait until every message is a folder."""
    while web.daemon.ask_queue(LARGE, "detail")[1]["lag"]:
        time.sleep(0.2)


def show(web: Served, path: str) -> None:
    line = http.client.HTTPConnection("127.0.0.1", web.port)
    took = []
    for _ in range(20):
        begun = time.perf_counter()
        line.request("GET", path, headers={"Accept": "text/html"})
        size = len(line.getresponse().read())
        took.append((time.perf_counter() - begun) * 1e3)
    line.close()
    median, worst = statistics.median(took), max(took)
    print(f"  {path:48}{size:8} bytes  median {median:6.1f}  worst {worst:6.1f} ms")


if __name__ == "__main__":
    main()
