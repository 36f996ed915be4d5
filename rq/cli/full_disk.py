"""What a full disk means to a start of RQ: `rq up` says it, whatever fails first."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator, Mapping

from rq import disk
from rq.cli import owner, place
from rq.config.admin import Admin, admin_status
from rq.errors import Refused
from rq.layout import Root

ACCEPT = "rq restore accept"
_NUMBER = re.compile(r"[\d.,]+( \w+)? free\b")


@contextlib.contextmanager
def explained(root: Root) -> Iterator[None]:
    """Say that the disk is full when that is why a start fails."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Refused(disk.lack(root.path) or f"{root.path}: {error}") from None


def all_take_messages(root: Root) -> bool:
    """Return whether the queues that answer take messages; say why not."""
    closed: dict[str, str] = {}
    with owner.Reader(root) as reader:
        for name in place.queue_names(root):
            if admin_status(root, name) is Admin.DOWN:
                continue
            if place.answers(root.queue(name)):
                detail = reader.detail(name)
                closed[name] = (detail and detail["closed_reason"]) or ""
    full = {name: why for name, why in closed.items() if why}
    for names, why in by_reason(full):
        verb = "takes" if len(names) == 1 else "take"
        place.note(f"warning: {', '.join(names)} {verb} no messages: {why}")
    return not full


def by_reason(closed: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """Return which queues take no messages for the same reason, and the reason.

    Queues on one disk see different numbers of free bytes, and copied queues name
    themselves in the command that accepts them; without both the reasons are equal.
    """
    groups: dict[str, tuple[list[str], str]] = {}
    for name, why in closed.items():
        for_all = why.replace(f"{ACCEPT} {name}`", f"{ACCEPT}`")
        names, _ = groups.setdefault(_NUMBER.sub("", for_all), ([], for_all))
        names.append(name)
    return list(groups.values())
