"""A slot: what a Spark task runs, the agent `rq work` with one slot, as a process.

Tasks run where RQ need not be installed. So this module travels with them, imports only
what comes with Python, and brings the agent along as a tar, with the one package that is
Python alone. Python there needs orjson.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

_SAID = 2000  # bytes of its log that are looked at when an agent fails
_KEPT = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ")  # variables of an agent
_PDEATHSIG = 1
_NEW = "new-"
# What was laid out before, and what was left half laid out.
_OLD = re.compile(r"(?:rq|script)-[0-9a-f]{32}|new-.+")

Ended = tuple[str, int, str]  # host, exit status, the last line of the agent's log


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a slot is told."""

    url: str  # of the queue
    seconds: float  # it leases for so long
    package: str  # name of the tar with RQ
    script: str | None  # of that with the script; None: the one that the queue shares
    token: str | None = field(repr=False)  # no trace of Python shows it
    insecure: bool
    label: str


def slots(given: Given) -> Callable[[Iterator[int]], Iterator[Ended]]:
    """Return what works on a partition: on each number in it, as one slot."""
    return lambda numbers: (_slot(given, number) for number in numbers)


def _slot(given: Given, number: int) -> Ended:
    from pyspark import SparkFiles

    base = own_directory()
    tars = [name for name in (given.package, given.script) if name is not None]
    with contextlib.ExitStack() as stack:
        held = laid_out(base, [SparkFiles.get(name) for name in tars])
        for directory in held:
            stack.callback(os.close, directory.lock)
        package, *script = (directory.path for directory in held)
        words = [*_words(given, number, base), *(f"--script={path}" for path in script)]
        passed = [directory.lock for directory in held]
        token = stack.enter_context(_in_memory(given.token))
        if token is not None:
            words.append(f"--token-file=/proc/self/fd/{token}")
            passed.append(token)
        log = stack.enter_context(tempfile.TemporaryFile())
        status = _run(words, package, log.fileno(), passed)
        log.seek(max(0, os.fstat(log.fileno()).st_size - _SAID))
        lines = log.read().decode("utf-8", "replace").splitlines() or [""]
    return socket.gethostname(), status, lines[-1]


def _words(given: Given, number: int, base: str) -> list[str]:
    words = ["work", given.url, "--slots=1", f"--for={given.seconds:.0f}s"]
    words += ["--grace=1s", f"--dir={base}/agents"]
    words.append(f"--label={f'{given.label}-{number}'[-64:]}")
    if given.insecure:
        words.append("--insecure")
    return words


def _run(words: list[str], package: str, log: int, passed: Sequence[int]) -> int:
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
        pass_fds=passed,
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
    not hand in, the next one finds there. OSError if it is another user's."""
    path = os.path.join(tempfile.gettempdir(), f"rq-spark-{os.geteuid()}")
    os.makedirs(path, 0o700, exist_ok=True)
    info = os.lstat(path)
    if info.st_uid != os.geteuid() or info.st_mode & 0o177077 != 0o40000:
        raise PermissionError(f"{path} is not a directory of this user's own")
    return path


@dataclass(frozen=True, slots=True)
class Held:
    """The directory of what came as a tar, and a descriptor that keeps it there."""

    path: str
    lock: int


def laid_out(base: str, tars: Sequence[str]) -> list[Held]:
    """Return the directories of tars, which are named by their content; remove those that
    no slot and no agent has any more. OSError."""
    with _turn(base):
        held = [_held(base, tar) for tar in tars]
        for name in filter(_OLD.fullmatch, os.listdir(base)):
            _remove_unused(os.path.join(base, name))
    return held


@contextlib.contextmanager
def _turn(base: str) -> Iterator[None]:
    """Let others wait: none finds a directory that has no lock yet."""
    with open(os.path.join(base, "lock"), "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _held(base: str, tar: str) -> Held:
    path = os.path.join(base, os.path.basename(tar).removesuffix(".tar.gz"))
    if not os.path.isdir(path):
        new = tempfile.mkdtemp(prefix=_NEW, dir=base)
        with tarfile.open(tar) as packed:
            packed.extractall(new, filter="data")
        os.rename(new, path)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return Held(path, lock)


def _remove_unused(path: str) -> None:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(path)
    finally:
        os.close(lock)
