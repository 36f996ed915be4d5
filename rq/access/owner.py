"""Whose an RQ is: verbs of root go on as the user whose files they touch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rq.errors import Refused
from rq.layout import Root
from rq.proc import descriptors, users

_ROOT_UID = 0
_BOOTSTRAP = Path(__file__).resolve().parents[2] / "bin" / "bootstrap.py"
_AGAIN = (
    f"as root run /usr/bin/python3 -I {_BOOTSTRAP}"
    if _BOOTSTRAP.exists()
    else "install RQ with that one"
)


def foreign_owner(root: Root) -> os.stat_result | None:
    """Return the directory of another user that makes this RQ its own, if we are root.

    Refused when several users own parts of it.
    """
    if os.geteuid() != _ROOT_UID:
        return None
    directories = dict(_directories(root))
    foreign = {
        path: info for path, info in directories.items() if info.st_uid != _ROOT_UID
    }
    whose = {info.st_uid for info in foreign.values()}
    if root.path in foreign and root.queues in directories.keys() - foreign.keys():
        whose.add(_ROOT_UID)  # an RQ that root has run in the directory of another
    if len(whose) > 1:
        raise Refused(_mixed(directories))
    return next(iter(foreign.values()), None)


def _directories(root: Root) -> Iterator[tuple[Path, os.stat_result]]:
    for path in (root.path, root.config_dir, root.queues):
        try:
            yield path, path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue


def _mixed(directories: dict[Path, os.stat_result]) -> str:
    said = ", ".join(
        f"{path} of {users.name_of(info.st_uid)}" for path, info in directories.items()
    )
    return f"an RQ is one user's, and here is {said}: `chown -R` it to one of them"


def act_as_owner(root: Root, keep: Iterable[int] = ()) -> bool:
    """Become the owner of this RQ, when root asks; True if that changed who we are.

    Whatever root left in the root of another could not be read, replaced or removed by
    its processes; and what lies there may lead root anywhere. So what was opened before
    goes to no program that is run from then on, but for `keep`. Refused for a user who
    can do nothing here.
    """
    info = foreign_owner(root)
    if info is None:
        _check_entry(root)
        return False
    descriptors.own_descriptors(keep)
    owner = users.user_of(info.st_uid, info.st_gid)
    try:
        users.become(owner)
    except OSError as error:
        raise Refused(f"cannot go on as {owner.name}: {error.strerror}") from None
    _check_code(owner)
    return True


def _check_entry(root: Root) -> None:
    """Refused when another's RQ is closed to us."""
    try:
        owner = users.name_of(root.path.stat().st_uid)
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError:
        owner = "another user"
    if not _is_open(root):
        raise Refused(
            f"{root.path}: permission denied: this is the RQ of {owner}; run it as "
            "that user, or as root"
        )


def _is_open(root: Root) -> bool:
    """Whether we may enter it; a config that was not yet made keeps nobody out."""
    if not os.access(root.path, os.X_OK):
        return False
    config = root.config_dir
    return not os.path.lexists(config) or os.access(config, os.R_OK | os.X_OK)


def _check_code(owner: users.User) -> None:
    """Refused when RQ's user cannot read RQ: then nothing that it starts would run."""
    if not os.access(__file__, os.R_OK):
        raise Refused(
            f"{__file__} is not readable for {owner.name}, whose RQ this is: RQ must lie "
            "where that user may read it, as in /opt/rq"
        )
    python = os.path.realpath(sys.executable)  # of pyenv or uv it may be in root's home
    for path, mode in ((python, os.X_OK), (os.__file__, os.R_OK)):
        if not os.access(path, mode):
            raise Refused(
                f"{path} is not readable for {owner.name}, whose RQ this is: install a "
                "Python for all (Debian 12 and later: apt-get install python3 "
                f"python3-venv), then {_AGAIN}"
            )
