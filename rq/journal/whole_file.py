"""Reads files of a journal that are replaced as a whole, and can be done without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from rq.errors import is_busy

Content = TypeVar("Content")


def read(path: Path, parse: Callable[[BinaryIO], Content | None]) -> Content | None:
    """Return what `parse` makes of a file; None when the file is missing or torn.

    OSError: it cannot be read now, which is not the same: what it says may stand
    nowhere else.
    """
    try:
        with path.open("rb") as file:
            return parse(file)
    except OSError as error:
        if is_busy(error):
            raise
        return None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
