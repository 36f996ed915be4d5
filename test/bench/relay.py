"""Relay between two roots on this machine: small messages a second, and attachments
beside curl, which sends the same bytes to the same web in the same run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rq.rpc import client

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from harness.queues import short  # noqa: E402
from harness.relay import Pair, pair_at  # noqa: E402  # beside the tests

MESSAGES = int(os.environ.get("RQ_BENCH_MESSAGES", "2000"))
SIZES = (1, 16, 256)  # MiB
ROUNDS = 5  # of both, in turns; the best of each is told


def main() -> None:
    where = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir())
    with tempfile.TemporaryDirectory(dir=where) as path, pair_at(Path(path)) as pair:
        small(pair)
        for size in SIZES:
            large(pair, size)


def small(pair: Pair) -> None:
    pair.sink.root.pause("sink").touch()
    pair.sink.ask("wake")
    begun = time.perf_counter()
    with client.Connection(pair.sender.dir.socket) as line:
        for _ in range(MESSAGES):
            line.send("create_message", {"dest": pair.direct, "param1": "x"})
        for _ in range(MESSAGES):
            assert line.receive()[0] == "ok"
    accepted = time.perf_counter()
    while pair.sender.ask("num_messages")["relayed"] < MESSAGES:
        time.sleep(0.02)
    took = time.perf_counter() - begun
    print(f"  {MESSAGES} small messages: {MESSAGES / took:.0f}/s")
    print(f"    (accepted here in {accepted - begun:.2f} s)")
    assert pair.sink.ask("num_messages")["que"] == MESSAGES


def large(pair: Pair, mib: int) -> None:
    file = pair.path / f"file{mib}"
    with file.open("wb") as out:
        for _ in range(mib):
            out.write(os.urandom(1024 * 1024))
    curl, relayed = [], []
    for _ in range(ROUNDS):
        curl.append(by_curl(pair, file))
        relayed.append(by_relay(pair, file))
    ours, theirs = min(relayed), min(curl)
    print(
        f"  {mib} MiB: relay {mib / ours:.0f} MiB/s, curl {mib / theirs:.0f} MiB/s "
        f"({theirs / ours:.0%})"
    )
    file.unlink()


def by_curl(pair: Pair, file: Path) -> float:
    """Return how long curl takes to prepare, attach and commit."""
    msg_id = pair.web.send("sink", _method="prep")
    url = f"{pair.direct}/{msg_id}"
    os.sync()
    begun = time.perf_counter()
    run(f"{url}/attach/new", "-F", "x_format=json", "-F", f"filedata=@{file}")
    run(url, "-d", "x_format=json", "-d", "_method=commit")
    return time.perf_counter() - begun


def run(*words: str) -> None:
    found = subprocess.run(["curl", "-s", *words], capture_output=True, check=True)
    assert found.stdout.startswith(b'["ok"'), found.stdout


def by_relay(pair: Pair, file: Path) -> float:
    """Return how long the relay takes from its claim to its end."""
    msg_id = short(pair.sender.ok("prep_message", {"dest": pair.direct}))
    asked = {"msg_id": msg_id, "pathname": str(file), "name": file.name}
    pair.sender.ok("attach_message", asked)
    os.sync()  # its own copy is no part of it, nor shall that wait in front of it
    pair.sender.ok("commit_message", {"msg_id": msg_id})
    ended = pair.sender.ended(msg_id, 60)
    assert ended["state"] == "relayed", ended
    return float(ended["result"]["run_us"]) / 1e6


if __name__ == "__main__":
    main()
