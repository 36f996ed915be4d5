"""Lines in the audit log for what verbs do to who may do what."""

from __future__ import annotations

import os
import pwd
import time

from rq.access.audit import Audit, Deed
from rq.layout import Root


def user() -> str:
    """Return the name of the user who runs this verb."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def note(root: Root, what: str) -> None:
    """Write what was done here into the audit log."""
    deed = Deed(who=user(), address="local", what=f"rq {what}", answer="ok")
    Audit(root).note(deed, time.time())
