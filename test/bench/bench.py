"""What the benchmarks share: a root on a chosen disk, a queue at work, and clients."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rq.layout import Root
from rq.rpc import client, wire

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = "#!/bin/sh\necho done >&3\n"


@dataclass(frozen=True)
class Disk:
    """Where a benchmark writes, and what that is called in its output."""

    path: Path
    name: str


def file_system(path: Path) -> str:
    """Return the type of the file system that holds `path`, with its journal."""
    from rq.files import disk

    found = disk.describe(path)
    journal = {True: " with journal", False: " without journal"}.get(
        found.has_journal, ""
    )
    return f"{found.kind}{journal}"


@contextlib.contextmanager
def disks(only: str | None = None) -> Iterator[list[Disk]]:
    """Give the disk as it is and, as root, a journaled ext4 in a loop image. Whoever ends
    the benchmark ends what it has started, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by TERM"))
    here = Path(
        tempfile.mkdtemp(prefix="rq-bench-", dir=os.environ.get("RQ_BENCH_DIR"))
    )
    found = [] if only == "loop" else [Disk(here, f"as it is: {file_system(here)}")]
    mounted = None if only == "disk" else _loop_image(here)
    if mounted:
        found.append(Disk(mounted, f"loop image: {file_system(mounted)}"))
    try:
        yield found
    finally:
        if mounted:
            subprocess.run(["umount", mounted], check=False)
        shutil.rmtree(here, ignore_errors=True)


def _loop_image(here: Path) -> Path | None:
    if os.getuid() != 0 or not shutil.which("mkfs.ext4"):
        return None
    image, target = here / "ext4.img", here / "ext4"
    target.mkdir()
    with image.open("wb") as file:
        file.truncate(12 * 1024**3)  # a million folders, and what is written of them
    made = subprocess.run(
        ["mkfs.ext4", "-q", "-F", "-N", "2600000", "-E", "lazy_itable_init=0", image],
        check=False,
    )
    mounted = subprocess.run(["mount", "-o", "loop", image, target], check=False)
    return target if made.returncode == mounted.returncode == 0 else None


def make_root(
    where: Path,
    script: str = SCRIPT,
    workers: int = 4,
    paused: bool = False,
    **config: object,
) -> Root:
    """Make a root with one queue, `q`."""
    root = Root(Path(tempfile.mkdtemp(prefix="root-", dir=where)))
    for path in (root.config_dir, root.queue("q").path, root.log):
        path.mkdir(parents=True)
    main = {"env": "bench", "host": "127.0.0.1", "port": 3333, "min_free_bytes": 0}
    root.config.write_text(json.dumps(main))
    run = root.path / "run"
    run.write_text(script)
    run.chmod(0o755)
    definition = {
        "script": str(run),
        "num_workers": workers,
        "exec_prefix": "",
        "nice": 0,
    }
    root.queue("q").config.write_text(json.dumps({**definition, **config}))
    if paused:
        root.pause("q").touch()
    return root


@contextlib.contextmanager
def queue_at_work(where: Path, **config: object) -> Iterator[Path]:
    """Run one queue process in a new root; give the path of its socket."""
    root = make_root(where, **config)
    with process(root, "q"):
        yield root.queue("q").socket
    shutil.rmtree(root.path)


@contextlib.contextmanager
def process(root: Root, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process of a queue until the block ends."""
    ready, write = os.pipe()
    code = (
        "import sys; from pathlib import Path; from rq.queues.process import main;"
        "sys.exit(main(Path(sys.argv[1]), sys.argv[2], ready_fd=int(sys.argv[3]),"
        " life_fd=None))"
    )
    profile = os.environ.get("RQ_BENCH_PROFILE")
    wrapped = ["-m", "cProfile", "-o", profile] if profile else []
    if profile:
        file = root.path / "main.py"
        file.write_text(code)
        wrapped += [str(file)]
    else:
        wrapped = ["-c", code]
    child = subprocess.Popen(
        [sys.executable, *wrapped, str(root.path), name, str(write)],
        pass_fds=[write],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    os.close(write)
    if os.read(ready, 1) != b"\n":
        raise SystemExit(f"the queue did not start; see {root.log}")
    os.close(ready)
    try:
        yield child
    finally:
        child.terminate()
        child.wait()


def crowd(path: Path, clients: int, total: int, param: str = "x") -> list[float]:
    """Send `total` messages over `clients` connections, one outstanding each; return
    the seconds each answer took."""
    request = wire.request(
        "create_message", json.dumps({"dest": "q", "param1": param}).encode()
    )
    selector = selectors.DefaultSelector()
    left = iter(range(total))
    begun: dict[socket.socket, float] = {}
    took: list[float] = []

    def ask(one: socket.socket) -> None:
        if next(left, None) is not None:
            begun[one] = time.perf_counter()
            one.send(request)

    lines = [_connected(path) for _ in range(clients)]
    for one in lines:
        selector.register(one, selectors.EVENT_READ)
        ask(one)
    while len(took) < total:
        for key, _ in selector.select():
            took.append(_accepted(key.fileobj) - begun[key.fileobj])
            ask(key.fileobj)
    for one in lines:
        selector.unregister(one)
        one.close()
    return took


def _connected(path: Path) -> socket.socket:
    one = socket.socket(socket.AF_UNIX)
    one.connect(str(path))
    return one


def _accepted(one: socket.socket) -> float:
    """Take an answer; return when it came."""
    answer = one.recv(65536)
    now = time.perf_counter()
    if b'["ok"' not in answer:
        raise SystemExit(f"not accepted: {answer!r}")
    return now


def drained(path: Path, done: int, seconds: float = 300.0) -> None:
    """Wait until `done` messages have ended."""
    until = time.monotonic() + seconds
    with client.Connection(path) as line:
        while line.ask("num_messages")["done"] < done:
            if time.monotonic() > until:
                raise SystemExit(f"not drained: {line.ask('num_messages')}")
            time.sleep(0.02)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
