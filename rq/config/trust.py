"""Whether root alone may write a file: then what it says about users is obeyed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rq.proc import users

_LINKS = 40  # that one path may lead through, as the kernel has it
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def others_may_write(path: Path) -> str:
    """Return, in a sentence, by what another user than root may change what lies at
    `path`: the file, a directory above it, or a link on the way; "" for nothing.

    In a directory with the sticky bit nobody moves or removes what is root's.
    """
    at, left, links = "/", _parts(str(path)), 0
    why = _open_to_others(at, is_last=False)
    while left and not why:
        here = os.path.normpath(os.path.join(at, left.pop(0)))
        try:
            is_link = stat.S_ISLNK(os.lstat(here).st_mode)
            why = _open_to_others(here, is_last=not left)
        except OSError as error:
            return f"{here} cannot be looked at: {error.strerror}"
        if not is_link:
            at = here
            continue
        links += 1
        if links > _LINKS:
            return f"{here} leads through too many links"
        target = os.readlink(here)
        at = "/" if target.startswith("/") else at
        left = [*_parts(target), *left]
    return why


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _open_to_others(path: str, *, is_last: bool) -> str:
    info = os.lstat(path)
    if info.st_uid != 0:
        return f"{path} belongs to {users.name_of(info.st_uid)}: chown root {path}"
    if stat.S_ISLNK(info.st_mode) or not info.st_mode & _OTHERS:
        return ""
    if not is_last and info.st_mode & stat.S_ISVTX:
        return ""
    return f"others than root may write {path}: chmod go-w {path}"
