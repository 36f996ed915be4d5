"""Building what RQ is installed from, and installing it somewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness.checkout import CHECKOUT
from harness.installation import call, python_for_all


def build(what: str, into: Path) -> list[Path]:
    """Run the one command; return what it says it has built."""
    made = call([CHECKOUT / "bin/package", what, into], timeout=300)
    assert made.returncode == 0, made.stderr
    return [Path(line) for line in made.stdout.splitlines()]


def clean_venv(place: Path) -> Path:
    """Make a venv with nothing in it, of a Python that any user may run; return it."""
    venv = place / "venv"
    command = [python_for_all(place), "-I", "-m", "venv", "--without-pip", venv]
    subprocess.run(command, check=True)
    return venv


def pip_install(venv: Path, *what: str | Path) -> None:
    """Install into a venv that has no pip of its own, as pipx does."""
    pip = [sys.executable, "-I", "-m", "pip", "--python", venv / "bin/python"]
    done = call([*pip, "install", "--no-input", *what], timeout=300)
    assert done.returncode == 0, done.stderr


def at_home() -> dict[str, str]:
    """Return an environment as a login has it, which knows no RQ."""
    kept = ("PATH", "HOME", "LANG")
    return {name: os.environ[name] for name in kept if name in os.environ}
