"""A job's own packages: a directory for each digest of what is asked for, made once.

It is made beside its place and renamed when it is whole and on disk, so what was
interrupted is never taken for whole. Whoever uses it holds a lock that is in it; those
that nobody has used for a month are removed when another one is made.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rq.config import files
from rq.errors import BadInput, RQError, Unreachable
from rq.layout import Root
from rq.proc import locks
from rq.spark import failures
from rq.spark.requirements import Requirements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]
_ARCHIVE, _IN_TASKS = "packages.tar.gz", "rq-packages"
_ERROR = re.compile(r"ERROR: (?!Exception:)")  # a trace follows that, and its last line
_TEMPORARY = "tmp"  # of pip
_INSIDE, _LOCK, _NEW, _OLD = "lib", "lock", ".new", ".old"
_UNUSED = 30 * 86400.0  # seconds until one that nobody uses is removed
_STEPS = re.compile(r"(?:Collecting|Downloading|Building|Installing|Processing) .*")
_AWAY = re.compile(r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout")
_PAUSE = 0.5  # seconds between lines about it


def ready(root: Root, wanted: Requirements, tell: Tell) -> Path:
    """Return the directory with packages, made if need be; it is kept while this process
    lives. BadInput when they cannot be installed, Unreachable when that may pass."""
    place = root.spark / "packages"
    files.make_dir(place)
    own = place / wanted.digest
    while not _hold(own):
        turn = _turn(place, tell)
        try:
            if not own.exists():
                _make(own, wanted, tell, turn)
                _remove_unused(place)
        finally:
            os.close(turn)
    return own / _INSIDE


def use(packages: Path) -> None:
    """Let this process and those it starts import them, before any others."""
    sys.path.insert(0, str(packages))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(packages), before)))
    importlib.invalidate_caches()


def send(spark: SparkSession, packages: Path) -> None:
    """Let tasks on other hosts, of the same system and Python, import them as well."""
    archive = packages.parent / _ARCHIVE
    if not archive.exists():
        _pack(packages, archive)
    spark.sparkContext.addArchive(f"{archive}#{_IN_TASKS}")
    # As addPyFile does it, which takes no compiled modules.
    spark.sparkContext._python_includes.insert(0, _IN_TASKS)


def _pack(packages: Path, archive: Path) -> None:
    new = archive.with_name(f"{archive.name}.{os.getpid()}{_NEW}")
    with tarfile.open(new, "w:gz", compresslevel=1) as tar:
        tar.add(packages, ".")
    new.replace(archive)


def _hold(own: Path) -> bool:
    """Hold a whole one for as long as this process lives; False when there is none."""
    try:
        locks.lock_shared(own / _LOCK)
        os.utime(own)
    except FileNotFoundError:
        return False
    return True


def _turn(place: Path, tell: Tell) -> int:
    """Wait until no other process makes one here; return the lock."""
    turn = locks.lock(place / _LOCK)
    if turn is not None:
        return turn
    tell("waiting for another job that installs its packages")
    return locks.lock_waiting(place / _LOCK)


def _make(own: Path, wanted: Requirements, tell: Tell, turn: int) -> None:
    new = own.with_name(own.name + _NEW)
    files.remove_dir(new)
    files.make_dir(new)
    tell(f"installing {wanted.names or 'packages'} (once)"[:200])
    listing = new / "requirements.txt"
    listing.write_text(wanted.text, "utf-8")
    try:
        (new / _TEMPORARY).mkdir()
        _pip(_command(listing, new / _INSIDE), wanted, tell, turn)
        files.remove_dir(new / _TEMPORARY)
        (new / _INSIDE).mkdir(exist_ok=True)
        (new / _LOCK).touch(0o600)
        os.sync()  # after a power cut, too, one that is there is whole
        new.rename(own)
    except BaseException:
        files.remove_dir(new)
        raise


def _command(listing: Path, target: Path) -> list[str]:
    command = [sys.executable, "-I", "-m", "pip", "install", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off"]
    return [*command, "--target", str(target), "--requirement", str(listing)]


def _pip(command: list[str], wanted: Requirements, tell: Tell, turn: int) -> None:
    """Let pip work, which holds the lock `turn` as well: if this process is killed,
    nobody begins anew beside it."""
    last: deque[str] = deque(maxlen=200)
    temporary = Path(command[-1]).with_name(_TEMPORARY)
    before = 0.0  # when the last line was told
    with subprocess.Popen(
        command,
        cwd=wanted.place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # What a pip that is killed leaves behind goes with the rest of what it began.
        env={**os.environ, "PIP_USER": "0", "TMPDIR": str(temporary)},
        pass_fds=(turn,),
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            last.append(line.rstrip())
            sys.stderr.write(line)
            if _STEPS.match(line.strip()) and time.monotonic() > before + _PAUSE:
                before = time.monotonic()
                tell(line.strip()[:120])
    if pip.returncode:
        kind, why = _failure(list(last), pip.returncode)
        raise kind(f"{wanted.names} cannot be installed for this job: {why}")


def _failure(lines: list[str], status: int) -> tuple[type[RQError], str]:
    """Return what ended pip, and whether it may pass: the machine failed, or the index."""
    if failures.is_full("\n".join(lines)):
        return Unreachable, failures.FULL
    if status < 0:
        name = signal.Signals(-status).name
        return Unreachable, f"pip was ended by {name}, perhaps for want of memory"
    errors = [line for line in lines if _ERROR.match(line)]
    text = next(reversed(errors), next(reversed(lines), "pip is not there"))
    kind = Unreachable if any(map(_AWAY.search, lines)) else BadInput
    return kind, text.removeprefix("ERROR: ").strip()[:300]


def _remove_unused(place: Path) -> None:
    """Remove what has not been used for a month, and what was interrupted."""
    for path in place.iterdir():
        with contextlib.suppress(OSError):
            if path.suffix in (_NEW, _OLD):
                files.remove_dir(path)
            elif path.is_dir() and time.time() - path.stat().st_mtime > _UNUSED:
                _remove(path)


def _remove(path: Path) -> None:
    held = locks.lock(path / _LOCK)
    if held is None:
        return
    try:
        # Under its name it is whole until it is gone.
        old = path.rename(path.with_name(path.name + _OLD))
        files.remove_dir(old)
    finally:
        os.close(held)
