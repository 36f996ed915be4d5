"""Where files lie that an attempt elsewhere has handed in, and how they get to attach/."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from rq import beneath, durable
from rq.layout import ATTACH, JOB

RESULTS = "results"


def directory(attempt: int) -> str:
    """Return where the files of an attempt lie, in the folder of its message."""
    return f"{JOB}/{RESULTS}/{attempt}"


def bring(here: str, attempt: int, names: Iterable[str], dir_fd: int) -> None:
    """Make files of an attempt attachments of the folder `here`.

    They keep their first name, which was synced: a rename between directories may lose
    both names in a power cut.
    """
    with contextlib.ExitStack() as opened:
        try:
            source = _open(f"{here}/{directory(attempt)}", dir_fd, opened)
        except (FileNotFoundError, NotADirectoryError):
            return
        with contextlib.suppress(FileExistsError):
            durable.make_dir(ATTACH, _open(here, dir_fd, opened))
        target = _open(f"{here}/{ATTACH}", dir_fd, opened)
        for name in names:
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                durable.link(name, name, source, target)


def _open(path: str, dir_fd: int, opened: contextlib.ExitStack) -> int:
    fd = beneath.open_place(path, dir_fd)
    opened.callback(os.close, fd)
    return fd
