"""`rq check` of what the broker keeps."""

from __future__ import annotations

import os

from rq.broker_client import questions
from rq.errors import Damaged, RQError, Unreachable
from rq.layout import Root


def problem(root: Root) -> str | None:
    """Return why what the broker keeps cannot be believed; None: it can, or there is
    none. A broker that runs has read all of it, and checks what it reads."""
    from rq.broker import check

    if not os.path.lexists(root.broker) or _runs(root):
        return None
    if not root.broker.is_dir():
        return f"{root.broker} is no directory, which a broker needs: move it away"
    try:
        check.jobs_in(root.broker)
    except Damaged as error:
        return str(error)
    except OSError as error:
        return f"{root.broker} cannot be read: {error.strerror}"
    return None


def _runs(root: Root) -> bool:
    try:
        questions.totals(root)
    except Unreachable:
        return False
    except RQError:  # it is there, and has no time
        return True
    return True
