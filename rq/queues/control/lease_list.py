"""The command that shows who holds what, and who asks for leases."""

from __future__ import annotations

import heapq

from rq.queues import arguments
from rq.queues.attempts.lease import Lease
from rq.queues.control.command import Context, Handler, Ok, object_in
from rq.queues.owner.owner import Owner
from rq.replies import LeaseRow, LeasesView

PAGE = 1000  # leases in one reply
_CURSOR = 64  # characters


def leases(ctx: Context, arg: bytes) -> Ok[LeasesView]:
    """Answer who holds what, in the order of the messages, and who asks for leases."""
    request = object_in(arg) if arg.strip() else {}
    limit = arguments.whole(request, "limit", PAGE, PAGE) or PAGE
    after = arguments.visible(request, "cursor", _CURSOR)
    out, desk = ctx.owner.leases, ctx.leases
    ids = (lease.msg_id for lease in out if lease.msg_id > after)
    page = heapq.nsmallest(limit + 1, ids)
    held = (out.of(msg_id) for msg_id in page[:limit])
    return "ok", {
        "leases": [_row(ctx.owner, lease) for lease in held if lease is not None],
        "count": len(out),
        "max": desk.grants.most,
        "next": page[limit - 1] if len(page) > limit else None,
        "workers": ctx.owner.remote_workers.rows(),
        "pull": ctx.owner.config.pull,
    }


def _row(owner: Owner, lease: Lease) -> LeaseRow:
    return {
        "msg_id": lease.msg_id,
        "attempt": lease.held.attempt,
        "by": lease.by,
        "since": lease.held.since,
        "until": owner.spool.clock() + lease.deadline - owner.leases.now(),
        "seconds": lease.seconds,
        "started": lease.started,
        "text": lease.text,
        "fraction": lease.fraction,
    }


HANDLERS: dict[str, Handler] = {"leases": leases}
