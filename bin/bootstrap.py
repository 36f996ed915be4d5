"""Make the checkout's .venv and put into it what pyproject.toml asks for.

Run by bootstrap.sh with any Python >= 3.11 and its standard library alone. RQ itself is
not installed: a .pth file names the checkout, so an update needs no second install.
"""

import compileall
import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
VENV = CHECKOUT / ".venv"
PYTHON = VENV / "bin" / "python"
PYPROJECT = CHECKOUT / "pyproject.toml"

# The two files that bootstrap.sh compares. The stamp is removed before anything in the
# venv changes and renamed into place last, so what was interrupted is never taken as
# whole: it is made anew.
INSTALLED = VENV / "rq.pyproject.toml"
STAMP = VENV / "rq.stamp"

LOCK = CHECKOUT / ".venv.lock"
LOG = CHECKOUT / ".venv.log"

# Spark is fetched and built here, not in /tmp, which may be small or in memory.
TMP = VENV / "tmp"
SPARK = "pyspark"
SPARK_BYTES = 2_500_000_000  # while it is installed; 1.1 GB of it stay
TELL_EVERY = 5.0

# Lines of pip that tell how far it is.
STAGES = r"^ *((?:Collecting|Downloading|Building|Installing) .{1,60})"

# Words of pip that mean "nobody answered", as opposed to "that package does not exist".
UNREACHABLE = ("Retrying (", "ConnectionError", "ConnectTimeout", "ReadTimeout")


class Refused(Exception):
    """The set-up cannot go on; the text says why and what to do."""


def main(extras: list[str]) -> int:
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
    with LOCK.open("w") as lock:
        wait_for(lock)
        present = extras_present()
        if present is None:
            create()
        extras = wanted | (present or set())
        if present is None or lacks(present, extras):
            install(extras, missing(present or set(), extras))
        stamp(extras)
    return None


def use_as_it_is(wanted: set[str]) -> None:
    """Accept a venv that another user made, when it holds what is needed."""
    present = extras_present()
    if present is None or lacks(present, wanted | present):
        owner = CHECKOUT.owner()
        raise Refused(
            f"{CHECKOUT} is not writable for you and its .venv is not up to date: "
            f"run {CHECKOUT}/bin/rq --help once as {owner}"
        )


def wait_for(lock) -> None:
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
    if not (os.access(PYTHON, os.X_OK) and STAMP.exists() and INSTALLED.exists()):
        return None
    made_for, extras = STAMP.read_text().splitlines()
    return set(extras.split()) if made_for == str(CHECKOUT) else None


def lacks(present: set[str], wanted: set[str]) -> bool:
    return bool(missing(present, wanted))


def missing(present: set[str], wanted: set[str]) -> list[str]:
    """List what pyproject.toml asks for and nobody has installed."""
    there = set(requirements(INSTALLED, present)) if INSTALLED.exists() else set()
    return sorted(set(requirements(PYPROJECT, wanted)) - there)


def requirements(pyproject: Path, extras: set[str]) -> list[str]:
    project = tomllib.loads(pyproject.read_text())["project"]
    optional = project["optional-dependencies"]
    # An extra that an older or newer pyproject.toml does not know asks for nothing.
    lists = [project["dependencies"], *(optional.get(name, []) for name in extras)]
    return sorted({requirement for each in lists for requirement in each})


# The steps


def create() -> None:
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    version = ".".join(map(str, sys.version_info[:3]))
    if importlib.util.find_spec("ensurepip") is None:
        add_ensurepip(base)
    say(f"setting up .venv with Python {version} (once, about 20 s)")
    STAMP.unlink(missing_ok=True)
    # The resolved name (python3.11, not python3) dangles after an upgrade of the system's
    # Python, and a venv whose python is gone is made anew.
    run([base, "-I", "-m", "venv", "--clear", VENV], "cannot make .venv")
    packages = next((VENV / "lib").glob("python3*")) / "site-packages"
    (packages / "rq-checkout.pth").write_text(f"{CHECKOUT}\n")


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
    run([*apt, "update"], why)
    run([*apt, "install", "-y", "--no-install-recommends", package], why)


def install(extras: set[str], lacking: list[str]) -> None:
    # PIP_USER=0: a `user = true` in somebody's pip.conf cannot work in a venv.
    os.environ |= {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    pip = [PYTHON, "-I", "-m", "pip"]
    why = "the packages could not be installed"
    if any(name.startswith(SPARK) for name in lacking) and STAMP.exists():
        install_large(pip, lacking, why)
    else:
        STAMP.unlink(missing_ok=True)
        needed = requirements(PYPROJECT, extras)
        say("installing " + ", ".join(needed))
        run([*pip, "install", "--no-input", "--quiet", *needed], why)
    compileall.compile_dir(CHECKOUT / "rq", quiet=2)
    os.sync()  # after a power cut, too, a stamp means that the packages are there


def install_large(pip: list, lacking: list[str], why: str) -> None:
    """Add Spark to a venv that works, and that goes on working if this fails.

    All is fetched and built beside it first; only then does the venv change.
    """
    demand_space(SPARK_BYTES)
    say(f"installing {', '.join(lacking)} (about 1.1 GB, 3 minutes)")
    shutil.rmtree(TMP, ignore_errors=True)
    wheels = TMP / "wheels"
    wheels.mkdir(parents=True)
    # Spark comes as source: pip before 23.1 must be told how to build it in a venv that
    # lacks the package wheel. Not as an option, which later ones may not know.
    os.environ |= {"TMPDIR": str(TMP), "PIP_USE_PEP517": "1"}
    fetch = ["wheel", "--no-input", "--no-cache-dir", "--wheel-dir", wheels]
    here = ["install", "--no-input", "--no-cache-dir", "--no-index"]
    try:
        run([*pip, *fetch, *lacking], why, shown=True)
        STAMP.unlink(missing_ok=True)
        run([*pip, *here, "--find-links", wheels, *lacking], why, shown=True)
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
    copy = INSTALLED.with_suffix(".new")
    shutil.copyfile(PYPROJECT, copy)
    copy.replace(INSTALLED)
    new = STAMP.with_suffix(".new")
    new.write_text(f"{CHECKOUT}\n{' '.join(sorted(extras))}\n")
    new.replace(STAMP)


# Talking to others


def run(command: list, why: str, *, shown: bool = False) -> None:
    """Run `command` with its output in LOG; raise Refused with `why` if it fails."""
    with LOG.open("w") as log:
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            close_fds=False,
        )
    try:
        status = watch(child) if shown else child.wait()
    except KeyboardInterrupt:
        child.wait()  # it has the same terminal, and writes into the venv
        raise
    if status == 0:
        return
    output = LOG.read_text(errors="replace")
    if any(word in output for word in UNREACHABLE):
        raise Refused(f"{why}: the package index does not answer (details: {LOG})")
    errors = re.findall(r"^(?:ERROR|Error|E): (.*)", output, re.MULTILINE)
    last = errors[-1] if errors else f"exit status {status}"
    raise Refused(f"{why}: {last} (details: {LOG})")


def watch(child: subprocess.Popen) -> int:
    """Tell what pip is at, every few seconds, until it ends; return its status."""
    begun = time.monotonic()
    while True:
        try:
            return child.wait(TELL_EVERY)
        except subprocess.TimeoutExpired:
            at = re.findall(STAGES, LOG.read_text(errors="replace"), re.MULTILINE)
            text = at[-1] if at else "asking the package index"
            say(f"  {time.monotonic() - begun:.0f} s: {text}")


def say(text: str) -> None:
    print(f"rq: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
