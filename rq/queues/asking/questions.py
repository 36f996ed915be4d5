"""Asks the owner of a queue how its messages stand; RQ's own folders answer for an owner
that has stopped, and nothing answers for one that has died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    request = {"msg_ids": ids, "queue": owner.name}
    socket = owner.root.queue(queue).socket
    try:
        reply = await loop_client.ask(socket, "ends", request, PATIENCE)
    except Unreachable:
        answers = await _in_folders(owner, queue, ids)
    else:
        answers = client.demanded(reply)
    return [str(answers[msg_id]) for msg_id in ids]


async def _in_folders(owner: Owner, queue: str, ids: list[str]) -> Mapping[str, str]:
    run, pool = owner.loop.run_in_executor, owner.pools.looks
    answers = await run(pool, standing.in_folders, owner.root.queue(queue), ids)
    if answers is None:
        raise Busy(f"queue {queue} does not answer")
    return answers
