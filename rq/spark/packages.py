"""A job's own packages: a directory for each digest of what is asked for, made once.

It is made beside its place and renamed when it is whole and on disk, so what was
interrupted is never taken for whole. A job that uses it holds a lock that is in it; those
that were not used for a month are removed when another one is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import operator
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rq.config import files
from rq.errors import BadInput, RQError, Unreachable
from rq.layout import Root
from rq.proc import locks
from rq.spark import failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]
_ARCHIVE, _IN_TASKS = "packages.tar.gz", "rq-packages"
_ERROR = re.compile(r"ERROR: (?!Exception:)")  # a trace follows that, and its last line
_TEMPORARY = "tmp"  # of pip
_INSIDE, _LOCK, _NEW, _OLD = "lib", "lock", ".new", ".old"
_UNUSED = 30 * 86400.0  # seconds until one that is not used is removed
_STEPS = re.compile(r"(?:Collecting|Downloading|Building|Installing|Processing) .*")
_AWAY = re.compile(r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout")
_PAUSE = 0.5  # seconds between lines about it
_SILENT = 600.0  # seconds: pip, which tells what it fetches and builds, hangs then
FILE = "requirements.txt"
_BEGIN, _END = "# /// script", "# ///"
# A package by its name, with extras, versions, an address, a marker (PEP 508): no path,
# and no option of pip behind it.
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*\s*(?:[\[@(<>=!~;].*)?", re.ASCII)
_BEHIND = re.compile(r"\s-|\bfile:|\\|[^\S ]")
_HASH = re.compile(r"\s+--hash=\S+")
# What a requirements file may say beside packages: it names no other file.
_OPTIONS = frozenset(
    {"-i", "--index-url", "--extra-index-url", "--no-index", "-f", "--find-links"}
    | {"--no-binary", "--only-binary", "--prefer-binary", "--require-hashes", "--pre"}
    | {"--trusted-host"}
)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


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
    silence = Silence(_SILENT)
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
        silence.watch(pip)
        for line in pip.stdout:
            silence.end()
            last.append(line.rstrip())
            sys.stderr.write(line)
            if _STEPS.match(line.strip()) and time.monotonic() > before + _PAUSE:
                before = time.monotonic()
                tell(line.strip()[:120])
    silence.over.set()
    if silence.is_broken:
        raise Unreachable(
            f"{wanted.names} cannot be installed for this job: pip has said nothing for "
            f"{_SILENT:.0f} s, and was ended"
        )
    if pip.returncode:
        kind, why = _failure(list(last), pip.returncode)
        raise kind(f"{wanted.names} cannot be installed for this job: {why}")


class Silence:
    """Ends a process that has said nothing for some seconds: it waits for what is away."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._heard = time.monotonic()
        self.over = threading.Event()
        self.is_broken = False

    def watch(self, process: subprocess.Popen[str]) -> None:
        """Begin, beside who reads what it says."""
        threading.Thread(target=self._run, args=(process,), daemon=True).start()

    def end(self) -> None:
        """Hear that it has said something."""
        self._heard = time.monotonic()

    def _run(self, process: subprocess.Popen[str]) -> None:
        while not self.over.wait(min(1.0, self._most)):
            if time.monotonic() - self._heard > self._most:
                self.is_broken = True
                process.kill()
                return


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


# ---- what a job asks for: in the file itself, or beside it
#
# In the file as PEP 723 has it, comments from `# /// script` to `# ///`; else what
# `requirements.txt` beside it says.


@dataclass(frozen=True, slots=True)
class Requirements:
    """What pip is to install: the text of a requirements file, from a directory."""

    text: str
    place: Path

    @property
    def digest(self) -> str:
        """What tells them, and the Python that they are for, from others."""
        python = f"{sys.executable}\n{sys.version}\n"
        return hashlib.sha256(f"{python}{self.text}".encode()).hexdigest()[:32]

    @property
    def names(self) -> str:
        """The packages, for people."""
        lines = (line.partition("#")[0].split() for line in self.text.splitlines())
        return ", ".join(words[0] for words in lines if words and words[0][0] != "-")


def of_script(script: Path) -> Requirements | None:
    """Return what a script asks for; None: nothing. BadInput when that cannot be read, or
    is for another Python."""
    header = _header(script)
    if header is not None:
        python = header.get("requires-python", "")
        if not isinstance(python, str) or not fits(python, sys.version_info[:3]):
            version = ".".join(map(str, sys.version_info[:3]))
            raise BadInput(
                f"{script.name} asks for Python {python!r:.60}, and RQ runs on {version}"
            )
    if header is not None and "dependencies" in header:
        text = "".join(f"{line}\n" for line in _dependencies(script, header))
    else:
        text = _beside(script.parent / FILE)
    return Requirements(text, script.parent.absolute()) if text.strip() else None


def _header(script: Path) -> dict[str, Any] | None:
    """Return what a script says of itself; None: nothing."""
    # As Python has it; what else ends a line of text may stand within one of code.
    lines = script.read_text("utf-8", "replace").split("\n")
    begins = [number for number, line in enumerate(lines) if line == _BEGIN]
    if not begins:
        return None
    if len(begins) > 1:
        raise BadInput(f"{script.name} has `{_BEGIN}` twice: it may have it once")
    block: list[str] = []
    for line in lines[begins[0] + 1 :]:
        if line != "#" and not line.startswith("# "):
            break
        block.append(line)
    if _END not in block:
        raise BadInput(f"{script.name} has `{_BEGIN}` and no `{_END}` to end it")
    end = len(block) - 1 - block[::-1].index(_END)
    try:
        return tomllib.loads("\n".join(line[2:] for line in block[:end]))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{script.name}, `{_BEGIN}`: {error}") from None


def _dependencies(script: Path, header: dict[str, Any]) -> list[str]:
    names = header["dependencies"]
    if not isinstance(names, list):
        raise BadInput(
            f'{script.name}: dependencies is no list such as ["matplotlib>=3.9"]'
        )
    for name in names:
        if not (isinstance(name, str) and _is_package(name)):
            raise BadInput(
                f"{script.name}: {name!r:.80} in dependencies is no package such as "
                "matplotlib>=3.9"
            )
    return names


def _is_package(text: str) -> bool:
    """Return whether a text asks for a package, and says nothing else to pip.

    >>> [_is_package(name) for name in ("a[b]>=1, <2; python_version < '4'", "a -e .")]
    [True, False]
    """
    is_plain = text.isprintable() and not _BEHIND.search(text)
    return is_plain and _PACKAGE.fullmatch(text) is not None


def _beside(path: Path) -> str:
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    for line in text.replace("\\\n", " ").splitlines():  # as pip parts and joins them
        said = " ".join(_COMMENT.sub("", line).split())
        if said and not (_is_option(said) or _is_package(_HASH.sub("", said))):
            raise BadInput(
                f"{path}: `{said:.80}` is no package, by its name, and no option that it "
                "may have: it must say all by itself"
            )
    return text


def _is_option(said: str) -> bool:
    return re.split(r"[=\s]", said, maxsplit=1)[0] in _OPTIONS


def fits(wanted: str, version: tuple[int, ...]) -> bool:
    """Return whether a version of Python is one of those that are wanted; BadInput.

    >>> [fits(text, (3, 11, 7)) for text in (">=3.11", "<3.11", "~=3.9", "==3.11.*", "")]
    [True, False, True, True, True]
    """
    return all(
        _clause(clause.strip(), version) for clause in wanted.split(",") if clause
    )


def _clause(clause: str, version: tuple[int, ...]) -> bool:
    parts = _CLAUSE.fullmatch(clause)
    if parts is None:
        raise BadInput(f"requires-python: {clause!r:.60} is not such as >=3.11")
    numbers = tuple(map(int, parts[2].split(".")))
    if parts[1] in ("==", "!="):
        size = len(numbers) if parts[3] else 3
        return (_cut(version, size) == _cut(numbers, size)) is (parts[1] == "==")
    if parts[1] == "~=":
        same = len(numbers) - 1
        return version >= numbers and version[:same] == numbers[:same]
    return _COMPARE[parts[1]](_cut(version, 3), _cut(numbers, 3))


def _cut(numbers: tuple[int, ...], size: int) -> tuple[int, ...]:
    return (*numbers, 0, 0, 0)[:size]
