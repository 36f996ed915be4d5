"""A line in systemd's journal for each message that has failed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from rq.message import guarded
from rq.proc import journald
from rq.proc.journald import ERR, Journald
from rq.spool import Spool
from rq.spool.record import Record
from rq.words import visible


@contextlib.contextmanager
def into_journal(spool: Spool, queue: str) -> Iterator[None]:
    """Tell of each message that fails, where systemd keeps the journal of this service."""
    journal = journald.of_service(os.environ)
    if journal is None:
        yield
        return
    with contextlib.closing(journal):
        spool.figures.on_failure = teller(journal, queue)
        yield


def teller(journal: Journald, queue: str) -> Callable[[Record], None]:
    """Return what tells of a message by the line that has ended it. What was said last
    stays out where it holds addresses that admins alone are shown."""
    is_hidden = queue in guarded.QUEUES

    def tell(line: Record) -> None:
        text = "" if is_hidden else visible.line(line.get("text") or "")
        msg_id, cause = line["msg"], line.get("cause", "")
        attempt = line.get("attempt", 0)
        values = {"queue": queue, "msg_id": msg_id, "cause": cause, "attempt": attempt}
        said = f"{queue}/{msg_id} failed ({cause})" + (f": {text}" if text else "")
        journal.say(ERR, said, values)

    return tell
