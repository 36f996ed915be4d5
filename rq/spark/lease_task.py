"""A slot: what a Spark task runs, the agent `rq work` with one slot, as a process.

Tasks run where RQ need not be installed. So this module travels with them, imports only
what comes with Python, and brings the agent along as a tar. Python there needs orjson.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SAID = 2000  # bytes of its log that are looked at when an agent fails
_KEPT = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ")  # variables of an agent
_PDEATHSIG = 1

Ended = tuple[str, int, str]  # host, exit status, the last line of the agent's log


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a slot is told."""

    url: str  # of the queue
    seconds: float  # it leases for so long
    package: str  # name of the tar with RQ
    script: str | None  # of that with the script; None: the one that the queue shares
    token: str | None
    insecure: bool
    label: str


def slots(given: Given) -> Callable[[Iterator[int]], Iterator[Ended]]:
    """Return what works on a partition: on each number in it, as one slot."""
    return lambda numbers: (_slot(given, number) for number in numbers)


def _slot(given: Given, number: int) -> Ended:
    base = own_directory()
    package = _laid_out(base, given.package)
    words = ["work", given.url, "--slots", "1", "--for", f"{given.seconds:.0f}s"]
    words += ["--grace", "1s", "--dir", f"{base}/agents"]
    words += ["--label", f"{given.label}-{number}"[-64:]]
    if given.insecure:
        words.append("--insecure")
    if given.script is not None:
        words += ["--script", _laid_out(base, given.script)]
    with tempfile.TemporaryFile() as log, _in_memory(given.token) as token:
        if token is not None:
            words += ["--token-file", f"/proc/self/fd/{token}"]
        status = _run(words, package, log.fileno(), token)
        log.seek(max(0, os.fstat(log.fileno()).st_size - _SAID))
        lines = log.read().decode("utf-8", "replace").splitlines() or [""]
    return socket.gethostname(), status, lines[-1]


def _run(words: list[str], package: str, log: int, token: int | None) -> int:
    """Run the agent to its end, which comes with that of this process at the latest."""
    libc, parent = ctypes.CDLL(None), os.getpid()

    def end_with_parent() -> None:
        # TERM, so that it ends its script and gives the message back.
        libc.prctl(_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "rq.cli", *words],
        env={**env, "PYTHONPATH": package},
        cwd=package,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=() if token is None else (token,),
        start_new_session=True,  # what ends the group of Spark's workers ends no agent
        preexec_fn=end_with_parent,  # noqa: PLW1509 - a task has no other threads
    )
    return process.wait()


@contextlib.contextmanager
def _in_memory(token: str | None) -> Iterator[int | None]:
    """Give a descriptor of a file that holds a token, and is on no disk."""
    if token is None:
        yield None
        return
    fd = os.memfd_create("token")
    try:
        os.fchmod(fd, 0o600)
        os.write(fd, token.encode())
        yield fd
    finally:
        os.close(fd)


# ---- directories


def own_directory() -> str:
    """Return the directory of all slots of this user on this host: what an agent could
    not hand in, the next one finds there. OSError if it is somebody else's."""
    path = os.path.join(tempfile.gettempdir(), f"rq-spark-{os.geteuid()}")
    os.makedirs(path, 0o700, exist_ok=True)
    info = os.lstat(path)
    if info.st_uid != os.geteuid() or info.st_mode & 0o177077 != 0o40000:
        raise PermissionError(f"{path} is not a directory of this user's own")
    return path


def _laid_out(base: str, name: str) -> str:
    """Return the directory of what came as a tar; it is named by its content."""
    from pyspark import SparkFiles

    path = os.path.join(base, name.removesuffix(".tar.gz"))
    if not os.path.isdir(path):
        new = tempfile.mkdtemp(dir=base)
        with tarfile.open(SparkFiles.get(name)) as tar:
            tar.extractall(new, filter="data")
        try:
            os.rename(new, path)
        except OSError:  # another slot was faster
            shutil.rmtree(new)
            if not os.path.isdir(path):
                raise
    return path
