"""Make the checkout's .venv and put into it what requirements.lock pins.

Run by bootstrap.sh with any Python >= 3.11 and its standard library alone. RQ itself is
not installed: a .pth file names the checkout, so an update needs no second install.
"""

import compileall
import contextlib
import fcntl
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "bin"))

import pins  # noqa: E402 - they lie beside this file
from programs import Refused, fresh, run, say  # noqa: E402
from pythons import base_python, closed_to_others, is_roots_alone, lies_in  # noqa: E402

VENV = CHECKOUT / ".venv"
PYTHON = VENV / "bin" / "python"
PYPROJECT = CHECKOUT / "pyproject.toml"

PINS = CHECKOUT / pins.NAME

# The files that bootstrap.sh compares. The stamp is removed before anything in the venv
# changes and renamed into place last, so what was interrupted is never taken as whole:
# it is made anew.
INSTALLED = VENV / "rq.pyproject.toml"
INSTALLED_PINS = VENV / "rq.requirements.lock"
STAMP = VENV / "rq.stamp"

LOCK = CHECKOUT / ".venv.lock"
LOG = CHECKOUT / ".venv.log"

# Spark is fetched and built here, not in /tmp, which may be small or in memory.
TMP = VENV / "tmp"
SPARK = "pyspark="
SPARK_BYTES = 2_500_000_000  # while it is installed; 1.1 GB of it stay


def main(extras: list[str]) -> int:
    # Whoever can write here is whoever runs RQ; and RQ's user must be able to read it.
    os.umask(0o022)
    try:
        bring_up_to_date(set(extras))
    except Refused as reason:
        say(str(reason))
    except OSError as error:
        say(f"cannot set up {VENV}: {error.strerror} ({error.filename})")
    except KeyboardInterrupt:
        say("set-up interrupted; the next command begins it anew")
    else:
        return 0
    return 1


def bring_up_to_date(wanted: set[str]) -> None:
    if not os.access(CHECKOUT, os.W_OK):
        return use_as_it_is(wanted)
    refuse_links()
    with locked():
        present = extras_present()
        extras = wanted | (present or set())
        demand_pins(extras)
        if present is None or is_roots_alone(PYTHON):
            create()
            present = begin(extras)
        lacking = missing(present, extras)
        if lacking:
            install(extras, lacking)
        stamp(extras)
    return None


def begin(extras: set[str]) -> set[str]:
    """Fill a new venv; return the extras that it has. Spark is added to one that works."""
    small = {name for name in extras if not needs_spark(pinned(PINS, {name}))}
    install(small, pinned(PINS, small))
    stamp(small)
    return small


def needs_spark(wanted: list[str]) -> bool:
    return any(pin.startswith(SPARK) for pin in wanted)


def use_as_it_is(wanted: set[str]) -> None:
    """Accept a venv that another user made, when it holds what is needed."""
    present = extras_present()
    if present is None or missing(present, wanted | present):
        extras = " ".join(["", *sorted(wanted)])
        why = lies_in(PYTHON)
        why = (
            f"{why}, and .venv is made of it" if why else "its .venv is not up to date"
        )
        raise Refused(
            f"{CHECKOUT} is not writable for you, and {why}: as "
            f"{owner()} run {base_python()} -I {CHECKOUT}/bin/bootstrap.py{extras}"
        )


def owner() -> str:
    try:
        return CHECKOUT.owner()
    except KeyError:
        return f"user {CHECKOUT.stat().st_uid}"


def refuse_links() -> None:
    """Refuse what would lead out of the checkout: somebody may have planted it."""
    for path in (VENV, VENV / "bin", VENV / "lib", TMP, LOCK):
        if path.is_symlink():
            raise Refused(f"{path} is a link, which may lead anywhere: remove it")


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Hold the lock file that is there: one that was removed keeps out nobody."""
    # Nothing is written to it, whatever somebody has put there.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        with open(os.open(LOCK, flags, 0o600)) as lock:
            wait_for(lock)
            if LOCK.exists() and os.path.samestat(os.fstat(lock.fileno()), LOCK.stat()):
                yield
                return


def wait_for(lock: TextIO) -> None:
    # Who can open it can hold it, and all who set up would wait.
    if os.fstat(lock.fileno()).st_uid == os.geteuid():
        os.fchmod(lock.fileno(), 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another RQ command that is setting up .venv")
        fcntl.flock(lock, fcntl.LOCK_EX)
    # pip inherits the lock: if this process is killed, nobody begins anew beside it.
    os.set_inheritable(lock.fileno(), True)


# What is there


def extras_present() -> set[str] | None:
    """Return the extras of a whole venv of this checkout, or None if there is none."""
    needed = (STAMP, INSTALLED, INSTALLED_PINS)
    if not (os.access(PYTHON, os.X_OK) and all(path.exists() for path in needed)):
        return None
    made_for, extras = STAMP.read_text().splitlines()
    return set(extras.split()) if made_for == str(CHECKOUT) else None


def missing(present: set[str], wanted: set[str]) -> list[str]:
    """List the pins of what is wanted that nobody has installed."""
    there = set(pinned(INSTALLED_PINS, present)) if INSTALLED_PINS.exists() else set()
    return sorted(set(pinned(PINS, wanted)) - there)


def pinned(lock: Path, extras: set[str]) -> list[str]:
    # An extra that an older or newer lock does not know asks for nothing.
    return pins.pins(lock.read_text(), {pins.BASE, *extras})


def demand_pins(wanted: set[str]) -> None:
    """Refuse a pyproject.toml that was edited alone."""
    lacking = pins.not_pinned(PYPROJECT, PINS.read_text(), {pins.BASE, *wanted})
    if lacking:
        raise Refused(
            f"{PINS} does not pin what pyproject.toml asks for ({', '.join(lacking)}): "
            f"run {base_python()} {CHECKOUT}/bin/lock.py"
        )


# The steps


def create() -> None:
    refuse_anothers()
    base = base_python()
    version = ".".join(map(str, sys.version_info[:3]))
    if importlib.util.find_spec("ensurepip") is None:
        add_ensurepip(base)
    say(f"setting up .venv with Python {version} (once, about 20 s)")
    say_whose(base)
    STAMP.unlink(missing_ok=True)
    # The resolved name (python3.11, not python3) dangles after an upgrade of the system's
    # Python, and a venv whose python is gone is made anew.
    run([base, "-I", "-m", "venv", "--clear", VENV], "cannot make .venv", LOG)
    packages = next((VENV / "lib").glob("python3*")) / "site-packages"
    (packages / "rq-checkout.pth").write_text(f"{CHECKOUT}\n")


def say_whose(base: Path) -> None:
    """Say that a .venv will be root's alone, where others could use it else."""
    why = lies_in(base)
    if os.geteuid() == 0 and why and not closed_to_others(CHECKOUT):
        say(
            f"{why}: as another user RQ will not run with this .venv. If it shall, "
            "install a Python for all (Debian 12 and later: apt-get install python3 "
            f"python3-venv), and run /usr/bin/python3 -I {CHECKOUT}/bin/bootstrap.py"
        )


def refuse_anothers() -> None:
    """Refuse a .venv in which we may change nothing: root has made it here."""
    if VENV.exists() and not os.access(VENV, os.W_OK):
        raise Refused(
            f"{VENV} is to be made again and is not writable for you: as root remove it"
        )


def add_ensurepip(base: Path) -> None:
    """Get what Debian splits off into its venv package, or say how."""
    is_default = base == Path("/usr/bin/python3").resolve()
    package = "python3-venv" if is_default else f"{base.name}-venv"
    command = f"apt-get install -y {package}"
    if shutil.which("apt-get") is None:
        raise Refused(f"{base} cannot make a venv with pip: install its ensurepip")
    if os.geteuid() != 0:
        raise Refused(f"{package} is missing: run `{command}` as root and try again")
    say(f"installing {package} with apt-get")
    why = f"{package} is missing and could not be installed: run `{command}`"
    apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=60"]
    run([*apt, "update"], why, LOG)
    run([*apt, "install", "-y", "--no-install-recommends", package], why, LOG)


def install(extras: set[str], lacking: list[str]) -> None:
    # PIP_USER=0: a `user = true` in somebody's pip.conf cannot work in a venv.
    os.environ |= {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if needs_spark(lacking):
        install_large(lacking)
    else:
        STAMP.unlink(missing_ok=True)
        groups = pins.groups(PYPROJECT)
        named = [
            requirement
            for group in (pins.BASE, *extras)
            for requirement in groups.get(group, [])
        ]
        say("installing " + ", ".join(sorted(set(named))))
        pip("install", "--quiet", "--require-hashes", lacking=lacking)
    for cache in (CHECKOUT / "rq").rglob("__pycache__"):
        if cache.is_symlink():
            cache.unlink()
    compileall.compile_dir(CHECKOUT / "rq", quiet=2)
    os.sync()  # after a power cut, too, a stamp means that the packages are there


def pip(*words: str | Path, lacking: list[str], visible: bool = False) -> None:
    """Let pip do something with pinned packages, and with none but these."""
    wanted = VENV / "rq.wanted.txt"
    with fresh(wanted) as file:
        file.write("\n".join(lacking) + "\n")
    verb, *options = words
    command = [PYTHON, "-I", "-m", "pip", verb, "--no-input", "--no-deps", *options]
    why = "the packages could not be installed"
    run([*command, "--requirement", wanted], why, LOG, visible=visible)
    wanted.unlink()


def install_large(lacking: list[str]) -> None:
    """Add Spark to a venv that works, and that goes on working if this fails.

    All is fetched and built beside it first; only then does the venv change.
    """
    demand_space(SPARK_BYTES)
    named = [pins.without_hashes(pin) for pin in lacking]
    names = sorted({pin.partition("==")[0] for pin in named})
    say(f"installing {', '.join(names)} (about 1.1 GB, 3 minutes)")
    shutil.rmtree(TMP, ignore_errors=True)
    wheels, build = TMP / "wheels", TMP / "build"
    wheels.mkdir(parents=True)
    # Spark comes as source: what builds it is pinned as well, and lies beside the venv.
    os.environ |= {"TMPDIR": str(TMP), "PIP_USE_PEP517": "1", "PYTHONPATH": str(build)}
    builders = pins.pins(PINS.read_text(), {pins.BUILD})
    checked = ("--no-cache-dir", "--require-hashes")
    fetch = ("--no-build-isolation", "--wheel-dir", wheels)
    offline = ("--no-cache-dir", "--no-index", "--find-links", wheels)
    try:
        pip("install", *checked, "--target", build, lacking=builders, visible=True)
        pip("wheel", *checked, *fetch, lacking=lacking, visible=True)
        STAMP.unlink(missing_ok=True)
        pip("install", *offline, lacking=named, visible=True)
    finally:
        shutil.rmtree(TMP, ignore_errors=True)


def demand_space(needed: int) -> None:
    free = shutil.disk_usage(CHECKOUT).free
    if free < needed:
        raise Refused(
            f"Spark needs {needed / 1e9:.1f} GB free in {CHECKOUT} while it is "
            f"installed and there are {free / 1e9:.1f}: make room and try again"
        )


def stamp(extras: set[str]) -> None:
    replace(INSTALLED, PYPROJECT.read_text())
    replace(INSTALLED_PINS, PINS.read_text())
    replace(STAMP, f"{CHECKOUT}\n{' '.join(sorted(extras))}\n")


def replace(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    with fresh(new) as file:
        file.write(text)
    new.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
