"""What keeps a message in que from running, as far as the schedule knows."""

from __future__ import annotations

from rq.queues.owner.backlog import Backlog
from rq.queues.schedule.keeps import Keeps, Reason
from rq.spool.entry import Entry


def keeps(backlog: Backlog, msg_id: str, entry: Entry, now: float) -> Keeps | None:
    """Return what keeps a message; None: it may run, in its turn. Unread: its key is not
    known for now."""
    if entry.rider_of is not None:
        return Keeps(Reason.RIDES, by=(entry.rider_of,))
    if entry.due > now:
        return Keeps(Reason.DUE, until=entry.due)
    key = backlog.exclusion_key(msg_id)
    if key is not None and key in backlog.busy_keys:
        return Keeps(Reason.KEY, by=backlog.busy_keys.who(key), name=key)
    held = backlog.waiting.held_for(msg_id)
    if held is not None:
        return Keeps(Reason.OUTSIDE, held[1], name=held[0])
    until = backlog.rate_until(now)
    return None if until <= now else Keeps(Reason.RATE, until)
