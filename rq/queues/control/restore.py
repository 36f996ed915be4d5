"""The commands about a queue that waits for a decision, because its directory was copied
or restored, or is the Ruby RQ's: what it would do, and what a person decides."""

from __future__ import annotations

from itertools import islice

from rq.errors import BadInput, WrongState
from rq.journal import mark
from rq.queues import arguments
from rq.queues.control import outbox
from rq.queues.control.command import Context, Handler, Ok, Request
from rq.replies import Restored
from rq.words.states import State

MOST = 1000
_MOST_SHOWN = 100
SAME, COPY = "same", "copy"
_SAID = {
    SAME: "it goes on as the queue that it was",
    COPY: "it goes on as a queue of its own, with a journal of its own",
}


def restored(ctx: Context, request: Request) -> Ok[Restored]:
    """Answer whether the queue waits for a decision about its directory: `why` (null:
    it does not wait), how much it would run and deliver, and the first of each."""
    owner = ctx.owner
    most = min(arguments.whole(request, "limit", _MOST_SHOWN), MOST)
    spool = owner.spool
    waiting = (msg_id for msg_id, _ in spool.in_state(State.QUE))
    return (
        "ok",
        {
            "why": owner.admission.restored,
            "journal_id": spool.journal_id,
            "messages": spool.depth,
            "ids": list(islice(waiting, most)),
            "owed": len(spool.owed),
            "deliveries": [
                outbox.entry_view(owner, of) for of in islice(spool.owed, most)
            ],
        },
    )


def restore(ctx: Context, request: Request) -> Ok[str]:
    """Write down what the directory is, as a person says; then open the queue again."""
    how = request.get("as")
    if not isinstance(how, str) or how not in _SAID:
        raise BadInput(f"'as' must be one of {', '.join(_SAID)}")
    owner = ctx.owner
    if owner.admission.restored is None:
        raise WrongState(f"queue {owner.name} needs no decision: it is at work")
    spool, copy = owner.spool, how == COPY
    place, journal = owner.queue.journal_dir, spool.journal_id
    mark.accept(place, spool.dir_fd, journal, copy=copy)
    ctx.open_again()
    return "ok", _SAID[how]


HANDLERS: dict[str, Handler] = {
    "restored": restored,
    "restore": restore,
}
