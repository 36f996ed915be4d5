"""Which Python others may run, too: pyenv and uv put root's below /root, which is closed."""

import os
import stat
import sys
from pathlib import Path


def base_python() -> Path:
    """Return the Python that runs this, no matter in which venv."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def closed_to_others(path: Path) -> Path | None:
    """Return the first place on the way to a program that only its owner may enter, or
    the program itself; None: all may run it, or it is gone."""
    program = path.resolve()
    for place in (*reversed(program.parents), program):
        try:
            mode = place.stat().st_mode
        except FileNotFoundError:
            return None
        if not mode & stat.S_IXOTH:
            return place
    return None


def is_roots_alone(path: Path) -> bool:
    """Return whether a venv's Python is closed to others, though we are one that is not:
    root may have made it before, of a Python in its home."""
    if os.geteuid() != 0 or not path.exists():
        return False
    return bool(closed_to_others(path)) and not closed_to_others(base_python())


def lies_in(path: Path) -> str:
    """Say where a Python that is closed to others lies.

    "": it is not closed.
    """
    place = closed_to_others(path)
    return (
        "" if place is None else f"{path.resolve()} lies in {place}, closed to others"
    )
