"""Copies of this checkout that any user can run, as an installation in /opt is."""

from __future__ import annotations

import compileall
import contextlib
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from harness.checkout import CHECKOUT
from harness.processes import lives
from harness.waiting import wait_until

USER = 4321  # nobody has it: without an entry in passwd
STRANGER = 4322


def install(place: Path, owner: int = 0) -> Path:
    """Make a checkout with its .venv, all of `owner`; return its directory. Its bytecode
    is there, as bin/bootstrap.py leaves it: who may only read would compile RQ anew with
    each command."""
    place.chmod(0o755)
    checkout = place / "opt rq"
    checkout.mkdir()
    for name in ("bin", "rq", "examples"):
        shutil.copytree(
            CHECKOUT / name,
            checkout / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("*.pyc.*"),  # that are being written
        )
    compileall.compile_dir(checkout / "rq", quiet=2)
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(CHECKOUT / name, checkout)
    make_venv(python_for_all(place), checkout)
    give(checkout, owner)
    return checkout


def make_venv(python: Path, checkout: Path) -> None:
    """Make what bin/bootstrap.py makes, of the packages that this Python has."""
    venv = checkout / ".venv"
    command = [python, "-I", "-m", "venv", "--without-pip", venv]
    subprocess.run(command, check=True)
    packages = next((venv / "lib").glob("python3*")) / "site-packages"
    (packages / "rq-checkout.pth").write_text(f"{checkout}\n")
    wanted = tomllib.loads((checkout / "pyproject.toml").read_text())
    copy_packages(wanted["project"]["dependencies"], packages)
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(checkout / name, venv / f"rq.{name}")
    (venv / "rq.stamp").write_text(f"{checkout}\n\n")


def copy_packages(requirements: list[str], target: Path) -> None:
    """Copy packages, and what they need, out of the environment of the tests."""
    done: set[str] = set()
    waiting = [one for one in requirements if "extra ==" not in one]
    while waiting:
        name = re.split(r"[^\w.-]", waiting.pop())[0]
        if name in done:
            continue
        done.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another Python or system
        waiting += [one for one in found.requires or () if "extra ==" not in one]
        copy_files(found, target)


def copy_files(package: importlib.metadata.Distribution, target: Path) -> None:
    for file in package.files or ():
        source = Path(str(file.locate()))
        if ".." not in file.parts and source.is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / file)  # else its bytecode is out of date


def python_for_all(place: Path) -> Path:
    """Return a Python that any user may run; a copy when the tests' own lies in a home."""
    base = Path(sys.base_prefix)
    name = f"python3.{sys.version_info.minor}"
    if all(path.stat().st_mode & 0o001 for path in (base, *base.parents)):
        return base / "bin" / name
    if (place / "python/bin" / name).exists():
        return place / "python/bin" / name
    (place / "python/bin").mkdir(parents=True)
    copied = Path(
        shutil.copy((base / "bin" / name).resolve(), place / "python/bin" / name)
    )
    # It finds its own library, which others may not read where it lies, in the copy: that
    # of the system may be of another version, which the modules here do not fit.
    old = os.fsencode(base / "lib") + b"\0"
    new = b"$ORIGIN/../lib".ljust(len(old), b"\0")
    copied.write_bytes(copied.read_bytes().replace(old, new))
    shutil.copytree(
        base / "lib" / name,
        place / "python/lib" / name,
        ignore=shutil.ignore_patterns("site-packages", "test", "tests", "config-*"),
    )
    for library in (base / "lib").glob("libpython*.so*"):
        shutil.copy(library, place / "python/lib")
    return place / "python/bin" / name


def closed_python(place: Path) -> Path:
    """Return a Python in a directory that only root may enter, as pyenv and uv make one in
    root's home."""
    base = python_for_all(place).resolve()
    home = place / "home of root"
    (home / "bin").mkdir(parents=True, mode=0o700)
    closed = Path(shutil.copy(base, home / "bin"))
    (home / "lib").symlink_to(base.parent.parent / "lib")
    (home / "bin/python3").symlink_to(closed.name)
    home.chmod(0o700)
    return closed


def path_without(directory: Path, *missing: str) -> dict[str, str]:
    """Return an environment whose PATH is a directory of all programs of the system but
    some."""
    directory.mkdir()
    for place in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
        for program in Path(place).iterdir():
            link = directory / program.name
            if program.name not in missing and not os.path.lexists(link):
                link.symlink_to(program)
    return {**os.environ, "PATH": str(directory)}


@contextlib.contextmanager
def place_for_all(prefix: str) -> Iterator[Path]:
    """Give a directory that any user may reach; each RQ in it is ended with it."""
    place = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield place
    finally:
        # Looked for once more when something goes meanwhile: an RQ is at work in there.
        found = wait_until(lambda: [place, *place.rglob("config/queuemgr.pid")])
        for file in found[1:]:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                pid = int(file.read_text())
                os.kill(pid, signal.SIGTERM)
                wait_until(lambda pid=pid: not lives(pid), 60)
        shutil.rmtree(place)


def give(path: Path, uid: int, gid: int | None = None) -> None:
    """Let all of a directory be a user's."""
    group = uid if gid is None else gid
    for one in (path, *path.rglob("*")):
        os.chown(one, uid, group, follow_symlinks=False)


def owners(path: Path) -> dict[str, int]:
    """Return who owns each file below a directory; of an RQ that runs some may go
    meanwhile."""
    found = {str(path): path.lstat().st_uid}
    for place, directories, files in os.walk(path):
        for name in (*directories, *files):
            with contextlib.suppress(FileNotFoundError):
                one = os.path.join(place, name)
                found[one] = os.lstat(one).st_uid
    return found


def as_user(uid: int) -> dict[str, object]:
    """Return the options of subprocess that start a program as a user."""
    return {
        "user": uid,
        "group": uid,
        "extra_groups": [],
        "env": {"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8"},
    }


def call(command: list[object], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program somewhere that all may be."""
    usual = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "cwd": "/",
        "timeout": 120,
    }
    words = [str(word) for word in command]
    return subprocess.run(words, check=False, text=True, **{**usual, **options})
