"""The commands that do one thing to all messages that a filter means."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable

from rq.errors import BadInput, Busy, Closed
from rq.message import filter as filters
from rq.message.action import Action
from rq.message.actions import Word
from rq.message.filter import Filter
from rq.proc.slices import in_slices
from rq.queues.bulk import actions, selection
from rq.queues.bulk.actions import Deed
from rq.queues.bulk.tally import Tally
from rq.queues.control.change import check_leaving
from rq.queues.control.command import Context, Handler, Ok, Request, asker
from rq.replies import BulkChoice, BulkView
from rq.spool.bulk import Bulk, Chosen, begin_bulk, write_list
from rq.words.nesting import Json
from rq.words.states import State

MOST = 1_000_000  # messages of one
MOST_OPEN = 100
_FIRST = 10  # ids that a dry run shows
_FAILED = (State.ERR, State.DISMISSED)

_Answer = Ok[BulkView] | Ok[BulkChoice]


def bulk(ctx: Context, request: Request) -> Awaitable[_Answer]:
    """Do one thing to all messages that a filter means now; with `dry_run` count them.
    The answer comes when the set is fixed, and durable."""
    is_count = bool(request.get("dry_run")) and request.get("action") is None
    action = None if is_count else actions.of_many(request.get("action"))
    wanted = filters.from_json(request.get("filter"), ctx.owner.spool.clock())
    if action is not None:
        _check(ctx, action, wanted)
    if action is None or request.get("dry_run"):
        counts = request.get("groups") and wanted.state in _FAILED
        return _counted(ctx, action, wanted, Tally() if counts else None)
    by = asker(ctx, request)
    deed = actions.deed_of_many(ctx.owner, action, request.get("to"), by)
    return _begun(ctx, deed, wanted)


def _check(ctx: Context, action: Action, wanted: Filter) -> None:
    actions.check_state(action, wanted.state)
    if action.word is Word.MOVE:
        check_leaving(ctx)


async def _counted(
    ctx: Context, action: Action | None, wanted: Filter, tally: Tally | None
) -> Ok[BulkChoice]:
    number, first, spool = 0, list[str](), ctx.owner.spool
    at = spool.clock()
    async for ids in _chosen(ctx, action, wanted):
        number += len(ids)
        first += ids[: _FIRST - len(first)]
        if tally is not None:
            await in_slices(tally.room_for(ids), functools.partial(tally.add, spool))
    choice: BulkChoice = {"messages": number, "ids": first, "at": at}
    return "ok", choice if tally is None else {**choice, **tally.view()}


async def _begun(ctx: Context, deed: Deed, wanted: Filter) -> Ok[BulkView]:
    spool, lines = ctx.owner.spool, bytearray()
    failed = wanted.state in _FAILED

    def choose(msg_id: str) -> None:
        failure = selection.failure(spool, msg_id) if failed else ""
        lines.extend(Chosen(msg_id, failure).line.encode())

    async for ids in _chosen(ctx, deed.action, wanted):
        await in_slices(ids, choose)
    run, pool = ctx.owner.loop.run_in_executor, ctx.owner.pools.files
    listed = await run(pool, write_list, spool.queue, spool.new_id(), bytes(lines))
    _check_open(ctx)
    bulk = begin_bulk(
        spool,
        listed,
        action=deed.action.word,
        to=deed.to,
        chosen_by=wanted.to_json(),
        by=deed.by,
    )
    ctx.bulks.add(bulk)
    ctx.owner.wake()
    return "ok", view(bulk)


async def _chosen(
    ctx: Context, action: Action | None, wanted: Filter
) -> AsyncIterator[list[str]]:
    """Give the messages that are meant, and not as an action would leave them; BadInput
    when they are more than one bulk may have."""
    number, spool = 0, ctx.owner.spool
    _check_open(ctx)
    _check_all_there(ctx, wanted)
    async for meant in selection.chosen(ctx.owner, wanted):
        ids = [
            msg_id
            for msg_id in meant
            if action is None or not actions.is_done(spool, action, msg_id)
        ]
        _check_open(ctx)
        number += len(ids)
        if number > MOST:
            raise BadInput(
                f"more than {MOST} messages match, the most that one request may "
                "change: say more of them"
            )
        yield ids


def _check_open(ctx: Context) -> None:
    """Raise why no bulk can begin now."""
    admission = ctx.owner.admission
    if admission.stopping:
        raise Closed("the queue is stopping")
    if admission.disk_failed:
        raise Closed(f"the disk failed: {admission.disk_failed}")
    if len(ctx.owner.spool.bulks.open_ones()) >= MOST_OPEN:
        raise Busy(f"{MOST_OPEN} bulks are open already: wait until one has ended")


def _check_all_there(ctx: Context, wanted: Filter) -> None:
    """Busy while accepted rows have still to become messages that wait: all are made
    then."""
    stock = ctx.owner.spool.txns.stock
    if wanted.state is State.QUE and (coming := stock.coming):
        stock.hurry = True
        ctx.owner.wake()
        closed = ctx.owner.admission.closed()
        now = "which RQ does now: ask again after that"
        later = f"which cannot be now ({closed}); `rq txn drop` discards such rows"
        still = f"{coming:,} rows have still to become messages"
        if coming == 1:
            still = "1 row has still to become a message"
        raise Busy(f"{still}, {later if closed else now}")


def show_bulk(ctx: Context, request: Request) -> Ok[BulkView]:
    """Answer how far a bulk is."""
    return "ok", view(_named(ctx, request))


def list_bulks(ctx: Context, request: Request) -> Ok[list[BulkView]]:
    """Answer how all stand that are open, and those that have ended last, the last
    first."""
    return "ok", [view(bulk) for bulk in ctx.owner.spool.bulks.all()]


def cancel_bulk(ctx: Context, request: Request) -> Ok[BulkView]:
    """End a bulk, unless it has ended; what it has changed stays so."""
    bulk = _named(ctx, request)
    if bulk.is_open:
        ctx.bulks.cancel(bulk)
    return "ok", view(bulk)


def _named(ctx: Context, request: dict[str, Json]) -> Bulk:
    bulk_id = request.get("bulk")
    if not isinstance(bulk_id, str):
        raise BadInput("lacking 'bulk', the id of one")
    return ctx.owner.spool.bulks.get(bulk_id)


def view(bulk: Bulk) -> BulkView:
    """Return what a client is told of a bulk."""
    fields: BulkView = {
        "bulk": bulk.bulk_id,
        "action": bulk.action,
        "filter": bulk.filter,
        "by": bulk.by,
        "state": bulk.standing,
        "messages": bulk.total,
        "looked_at": bulk.at,
        "changed": bulk.changed,
        "since": bulk.began,
    }
    if isinstance(bulk.to, str | int | float):
        fields["to"] = bulk.to
    if bulk.failed_again:
        fields["failed_again"] = bulk.failed_again
    if not bulk.is_open:
        fields["ended"] = bulk.ended
    if bulk.why:
        fields["why"] = bulk.why
    return fields


HANDLERS: dict[str, Handler] = {
    "bulk": bulk,
    "show_bulk": show_bulk,
    "list_bulks": list_bulks,
    "cancel_bulk": cancel_bulk,
}
