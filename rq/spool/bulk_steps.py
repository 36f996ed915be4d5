"""The lines of a bulk that are no events of its messages."""

from __future__ import annotations

from rq.message import JsonObject
from rq.nesting import Json
from rq.spool.bulk import STEP, Bulk, Listed, Standing
from rq.spool.record import More, NoteFields
from rq.spool.store import Spool
from rq.states import Note


def begin(
    spool: Spool,
    listed: Listed,
    *,
    action: str,
    to: Json = None,
    chosen_by: JsonObject,
    by: str,
) -> Bulk:
    """Begin a bulk whose list is durable. `to`: what the action is done with;
    `chosen_by`: the filter; `by`: who asks."""
    first_line: NoteFields = {
        "bulk": listed.bulk_id,
        "is": Standing.OPEN,
        "action": action,
        "filter": chosen_by,
        "by": by,
        "n": listed.total,
        "sha256": listed.sha256,
    }
    if to is not None:
        first_line["to"] = to
    spool.bulks.take(spool.note(Note.BULK, **first_line))
    return spool.bulks.get(listed.bulk_id)


def told_to_end(spool: Spool, msg_id: str, more: More) -> None:
    """Write down that a bulk has told a message at work to end, which has no event of its
    own before it does; `more` names the bulk and the place in its list."""
    line: NoteFields = {
        "bulk": more["bulk"],
        "is": STEP,
        "at": more["at"],
        "msg": msg_id,
    }
    spool.bulks.take(spool.note(Note.BULK, **line))


def end(spool: Spool, bulk: Bulk, how: Standing, why: str = "") -> None:
    """End an open bulk; what it has not changed by now stays as it is."""
    last_line: NoteFields = {
        "bulk": bulk.bulk_id,
        "is": how,
        "n": bulk.changed,
        "at": bulk.at,
    }
    if bulk.failed_again:
        last_line["failed_again"] = bulk.failed_again
    if why:
        last_line["reason"] = why
    spool.bulks.take(spool.note(Note.BULK, **last_line))
