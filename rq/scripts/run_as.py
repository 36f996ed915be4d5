"""The user that the scripts of a queue run as, and how they become that user.

posix_spawn sets no user, and a fork of an owner takes the longer the more messages it
has. So a program of util-linux, setpriv, stands between: it takes groups, group and user,
and becomes the script, with the same process, descriptors and environment.
"""

from __future__ import annotations

import functools
import grp
import os
import pwd
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rq.config.settings import QueueConfig
from rq.errors import BadConfig
from rq.proc import users
from rq.proc.users import User

Ids = tuple[int, int]  # of a user and its group
_PLACES = ("/usr/bin/setpriv", "/bin/setpriv", "/usr/sbin/setpriv", "/sbin/setpriv")
_UMASK = 'umask "$0" && exec "$@"'
# Names that the kernel, the loader or the C library of setpriv might act on are called
# otherwise while it is root, and get their names back when it is not.
_LATER = (
    'for rq_n in $RQ_LATER; do eval "$rq_n=\\$RQ_LATER_$rq_n; export $rq_n"; '
    'unset "RQ_LATER_$rq_n"; done; unset RQ_LATER rq_n; exec "$@"'
)
_HARMLESS = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR"})
_OF_SHELLS = frozenset({"PPID", "UID", "EUID", "SHELLOPTS", "BASHOPTS"})  # read only
_LANGUAGES = ("LANG", "LC_")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_READ_RUN, _RUN = 0o5, 0o1
_LARGEST = 2**32 - 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """What stands before the words of a script, and what of it is in its environment."""

    user: User | None = None  # None: RQ's own
    words: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> Ids | None:
        """The user and group that its files belong to; None: RQ's own."""
        return None if self.user is None else (self.user.uid, self.user.gid)

    def start(
        self, argv: list[str], env: Mapping[str, str]
    ) -> tuple[list[str], Mapping[str, str]]:
        """Return the words and the environment by which `argv` is started with `env`."""
        if self.user is None:
            return [*self.words, *argv], env
        later = sorted(name for name in env if _acts(name, env[name]))
        if not later:
            return [*self.words, *argv], env
        kept = {name: env[name] for name in env if name not in later}
        kept |= {f"RQ_LATER_{name}": env[name] for name in later}
        kept["RQ_LATER"] = " ".join(later)
        return [*self.words, "/bin/sh", "-c", _LATER, "sh", *argv], kept


def _acts(name: str, value: str) -> bool:
    """Whether a program of root might do something for a variable that a script has."""
    if name.startswith(_LANGUAGES):  # a path leads to files that are read
        return "/" in value
    is_known = name in _HARMLESS or name in _OF_SHELLS or name.startswith("RQ_")
    return not is_known and _NAME.fullmatch(name) is not None


AS_RQ = RunAs()


def resolve(
    config: QueueConfig, files: list[Path], others: Callable[[Path], str]
) -> RunAs:
    """Return whom the scripts of a queue run as; BadConfig in a sentence when what its
    config says of that is not obeyed. `files`: all that its config was made of; `others`
    tells who but root may write one of these."""
    user = _user(config, files, others) if config.user else None
    words = _words(config, user)
    return RunAs(user=user, words=words, env={} if user is None else _env(config, user))


def _user(
    config: QueueConfig, files: list[Path], others: Callable[[Path], str]
) -> User:
    if os.geteuid() != 0:
        raise BadConfig(
            f"user is {config.user}, and RQ does not run as root: only root can start "
            "scripts as another user"
        )
    for path in files:
        if why := others(path):
            raise BadConfig(
                f"user is {config.user}, and that is obeyed only from a config that root "
                f"alone may write: {why}"
            )
    user = _account(config.user, config.group)
    if user.uid == 0 or user.gid == 0:
        raise BadConfig(
            f"user is {config.user}, which has the rights of root: take it out, or name "
            "another user"
        )
    return user


def _account(name: str, group: str) -> User:
    """Return a user by name or number, with `group` in place of its first one."""
    gid = _gid(group) if group else None
    try:
        uid = int(name) if _is_number(name) else pwd.getpwnam(name).pw_uid
        entry = pwd.getpwuid(uid)
    except KeyError:
        if not _is_number(name) or int(name) > _LARGEST:
            raise BadConfig(f"user: there is no user {name} on this machine") from None
        if gid is None:
            raise BadConfig(
                f"user: number {name} has no entry in passwd: say group, too"
            ) from None
        return User(int(name), gid, name, "/", ())
    user = users.user_of(uid, entry.pw_gid)
    groups = tuple(number for number in user.groups if number != 0)
    first = user.gid if gid is None else gid
    return User(uid, first, user.name, user.home, groups, user.shell)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _gid(group: str) -> int:
    if _is_number(group) and int(group) <= _LARGEST:
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise BadConfig(f"group: there is no group {group} on this machine") from None


def _env(config: QueueConfig, user: User) -> dict[str, str]:
    own = {
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": user.shell,
    }
    return {name: value for name, value in own.items() if name not in config.env_vars}


def _words(config: QueueConfig, user: User | None) -> tuple[str, ...]:
    words: list[str] = []
    if user is not None:
        groups = ",".join(map(str, user.groups))
        words += ["--reuid", str(user.uid), "--regid", str(user.gid)]
        words += ["--groups", groups] if groups else ["--clear-groups"]
        words += ["--inh-caps=-all"]
    if config.no_new_privs:
        words += ["--no-new-privs"]
    if words:
        words = [_helper(), *words, "--"]
    if config.umask:
        words += ["/bin/sh", "-c", _UMASK, config.umask]
    return tuple(words)


@functools.cache
def setpriv() -> str:
    """Return where the helper is; "" where it is not."""
    for place in _PLACES:
        real = os.path.realpath(place)
        if os.access(real, os.X_OK) and os.path.basename(real) != "busybox":
            return place
    return ""


def _helper() -> str:
    if not (helper := setpriv()):
        setpriv.cache_clear()  # it may be installed meanwhile
        raise BadConfig(
            "user and no_new_privs take the program setpriv of util-linux, which is not "
            "in /usr/bin: install the package util-linux (or setpriv)"
        )
    return helper


def closed_to(user: User, path: str, *, program: bool) -> str:
    """Return the file or directory that keeps a user from a directory, or from running a
    `program`; "" when none seems to. What has a list of rights (ACL) may do anything."""
    real = os.path.realpath(path)
    for above in reversed(Path(real).parents):
        if not _may(user, str(above), _RUN):
            return str(above)
    return "" if _may(user, real, _READ_RUN if program else _RUN) else real


def _may(user: User, path: str, want: int) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return True  # so says the user who starts it
    shift = 6 if info.st_uid == user.uid else 0
    if not shift and info.st_gid in (user.gid, *user.groups):
        shift = 3
    return info.st_mode >> shift & want == want or _has_list(path)


def _has_list(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "system.posix_acl_access"))
    except OSError:
        return False
