"""Users of this machine: who they are, and becoming one of them for good."""

from __future__ import annotations

import os
import pwd
import tempfile
from dataclasses import dataclass

# What a program keeps of the environment of the user that it was. The rest may hold
# secrets of that user, or lead to its home.
_KEPT = frozenset(
    [
        "PATH",
        "TERM",
        "COLUMNS",
        "LINES",
        "NO_COLOR",
        "LANG",
        "LANGUAGE",
        "TZ",
        "SUDO_USER",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
    ]
)
_KEPT_BEGINNINGS = ("LC_", "RQ_")


@dataclass(frozen=True, slots=True)
class User:
    """A user; without an entry in passwd its name is its number."""

    uid: int
    gid: int
    name: str
    home: str
    groups: tuple[int, ...]
    shell: str = "/bin/sh"


def user_of(uid: int, gid: int) -> User:
    """Return the user of a uid; `gid` is its group when passwd does not know it."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, gid, str(uid), "/", ())
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    shell = entry.pw_shell or "/bin/sh"
    return User(uid, entry.pw_gid, entry.pw_name, entry.pw_dir, tuple(groups), shell)


def name_of(uid: int) -> str:
    """Return the name of a user, or its number."""
    return user_of(uid, 0).name


def kernel_name(uid: int) -> str:
    """Return what a user is called whom the kernel names; no name of one holds a colon."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid:{uid}"


def become(user: User) -> None:
    """Be `user` for good, with its groups and an environment of its own.

    As with sudo, SUDO_USER says who it was.
    """
    before = name_of(os.getuid())
    tempfile.tempdir = None  # it is looked for again
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(_KEPT_BEGINNINGS):
            del os.environ[name]
    directories = os.get_exec_path()
    usable = [
        path for path in directories if os.path.isabs(path) and os.access(path, os.X_OK)
    ]
    os.environ["PATH"] = os.pathsep.join(usable)
    os.environ.setdefault("SUDO_USER", before)
    os.environ.update(HOME=user.home, USER=user.name, LOGNAME=user.name)
