"""Asks the owner of a queue how its messages stand; RQ's own folders answer for an owner
that has stopped or is parked, and nothing answers for one that has died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rq.config import parked
from rq.errors import Busy, Unreachable
from rq.queues.asking import standing
from rq.queues.owner.owner import Owner
from rq.rpc import client, loop_client

PATIENCE = 10.0  # seconds that an owner has to answer


async def standings(owner: Owner, queue: str, places: Sequence[str]) -> list[str]:
    """Return how messages of a queue stand; RQError: it does not say."""
    ids = [place.partition("/")[2] for place in places]
    if queue == owner.name:
        answers = await standing.of_all(owner, ids, queue)
        return [answers[msg_id] for msg_id in ids]
    said = None
    if parked.is_current(owner.root, queue):  # to connect would start it
        said = await _in_folders(owner, queue, ids, owes_nothing=True)
    if said is None:
        said = await _of_owner(owner, queue, ids)
    return [str(said[msg_id]) for msg_id in ids]


async def _of_owner(owner: Owner, queue: str, ids: list[str]) -> Mapping[str, str]:
    request = {"msg_ids": ids, "queue": owner.name}
    socket = owner.root.queue(queue).socket
    try:
        reply = await loop_client.ask(socket, "ends", request, PATIENCE)
    except Unreachable:
        answers = await _in_folders(owner, queue, ids)
        if answers is None:
            raise Busy(f"queue {queue} does not answer") from None
        return answers
    return cast("Mapping[str, str]", client.demanded(reply))


async def _in_folders(
    owner: Owner, queue: str, ids: list[str], *, owes_nothing: bool = False
) -> Mapping[str, str] | None:
    run, pool = owner.loop.run_in_executor, owner.pools.looks
    place = owner.root.queue(queue)
    return await run(pool, standing.in_folders, place, ids, owes_nothing)
