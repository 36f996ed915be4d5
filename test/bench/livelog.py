"""How soon a line is with those who watch, and what watching costs.

.venv/bin/python test/bench/livelog.py [VIEWERS]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

import showcase  # noqa: E402
from harness.ports import free_port  # noqa: E402
from harness.supervisor import Daemon, daemon_on  # noqa: E402

LINES = 100
SPARSE = 2 * 1024**3
WRITER = f"""#!/bin/sh
n=0
sleep 4
while [ $n -lt {LINES} ]; do n=$((n + 1)); date +@%s.%N; sleep 0.1; done
sleep 1
echo done >&3
"""
LARGE = f"""#!/bin/sh
truncate -s {SPARSE} stdio.log
for n in 1 2 3 4 5 6 7 8 9; do echo "line $n"; sleep 0.5; done
echo done >&3
"""


async def viewer(port: int, path: str, delays: list[float]) -> int:
    """Follow a log to its end; return how many bytes came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    taken = 0
    while True:
        line = await reader.readline()
        now = time.time()
        taken += len(line)
        if not line or line.startswith(b"event: end"):
            break
        if line.startswith(b"data: ") and b'"text"' in line:
            for word in line.replace(b"\\n", b" ").replace(b'"', b" ").split():
                if word.startswith(b"@"):
                    delays.append(now - float(word[1:]))
    writer.close()
    return taken


def memory(daemon: Daemon) -> dict[str, int]:
    """Return the PSS in KiB of the web's processes, by pid."""
    found = {}
    for pid in daemon.processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        if b"rq-web" in words or b"rq.web" in words:
            pss = next(one for one in rollup.splitlines() if one.startswith("Pss:"))
            found[str(pid)] = int(pss.split()[1])
    return found


def cpu(daemon: Daemon) -> float:
    """Return the seconds of processor time of the web's processes."""
    ticks = 0
    for pid in memory(daemon):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / 100


async def many(daemon: Daemon, port: int, count: int) -> None:
    msg_id = showcase.send(daemon, "writer", "")
    before, began = cpu(daemon), time.monotonic()
    delays: list[float] = []
    path = f"/q/writer/{msg_id}/follow?from=0"
    taken = await asyncio.gather(*(viewer(port, path, delays) for _ in range(count)))
    used = cpu(daemon) - before
    took = time.monotonic() - began
    delays.sort()
    print(
        f"{count} viewers, {LINES} lines: {len(delays)} seen, "
        f"median {statistics.median(delays) * 1000:.0f} ms, "
        f"p99 {delays[int(len(delays) * 0.99)] * 1000:.0f} ms, "
        f"web {used / took * 100:.0f} % of a core, {sum(taken) / 1e6:.1f} MB sent, "
        f"PSS {sum(memory(daemon).values()) // 1024} MiB"
    )


async def large(daemon: Daemon, port: int) -> None:
    before = sum(memory(daemon).values())
    msg_id = showcase.send(daemon, "large", "")
    await asyncio.sleep(1)
    path = f"/q/large/{msg_id}/follow?from="
    took = time.monotonic()
    taken = await asyncio.gather(
        viewer(port, path + "0", []), viewer(port, path + str(SPARSE - 65536), [])
    )
    print(
        f"2 GiB log: from byte 0 {taken[0] / 1e6:.2f} MB sent, from its end "
        f"{taken[1] / 1e6:.2f} MB, {time.monotonic() - took:.1f} s, "
        f"PSS {before // 1024} -> {sum(memory(daemon).values()) // 1024} MiB"
    )


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="rq-bench-") as scratch,
        daemon_on(Path(scratch) / "rq", forked=False) as daemon,
    ):
        showcase.configure(daemon, port)
        daemon.start()
        daemon.until_up("web")
        for name, script in (("writer", WRITER), ("large", LARGE)):
            directory = daemon.define(name, {})
            (directory / "run").write_text(script)
            daemon.link(name, directory)
            daemon.until_up(name)
        asyncio.run(many(daemon, port, count))
        asyncio.run(large(daemon, port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
