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
            install(extras)
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
    needed = set(requirements(PYPROJECT, wanted))
    return not needed <= set(requirements(INSTALLED, present))


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


def install(extras: set[str]) -> None:
    STAMP.unlink(missing_ok=True)
    needed = requirements(PYPROJECT, extras)
    say("installing " + ", ".join(needed))
    # PIP_USER=0: a `user = true` in somebody's pip.conf cannot work in a venv.
    os.environ |= {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    pip = [PYTHON, "-I", "-m", "pip", "install", "--no-input", "--quiet"]
    run([*pip, *needed], "the packages could not be installed")
    compileall.compile_dir(CHECKOUT / "rq", quiet=2)
    os.sync()  # after a power cut, too, a stamp means that the packages are there


def stamp(extras: set[str]) -> None:
    copy = INSTALLED.with_suffix(".new")
    shutil.copyfile(PYPROJECT, copy)
    copy.replace(INSTALLED)
    new = STAMP.with_suffix(".new")
    new.write_text(f"{CHECKOUT}\n{' '.join(sorted(extras))}\n")
    new.replace(STAMP)


# Talking to others


def run(command: list, why: str) -> None:
    """Run `command` with its output in LOG; raise Refused with `why` if it fails."""
    with LOG.open("w") as log:
        ended = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            close_fds=False,
            check=False,
        )
    if ended.returncode == 0:
        return
    output = LOG.read_text(errors="replace")
    if any(word in output for word in UNREACHABLE):
        raise Refused(f"{why}: the package index does not answer (details: {LOG})")
    errors = re.findall(r"^(?:ERROR|Error|E): (.*)", output, re.MULTILINE)
    last = errors[-1] if errors else f"exit status {ended.returncode}"
    raise Refused(f"{why}: {last} (details: {LOG})")


def say(text: str) -> None:
    print(f"rq: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
