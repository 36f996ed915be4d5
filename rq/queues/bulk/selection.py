"""The messages that a filter means, as they are now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Container, Iterator, Mapping
from itertools import islice

from rq import names
from rq.config import secrets
from rq.errors import BadMessage, NoSuchMessage
from rq.layout import QueueDir
from rq.message import filter as filters
from rq.message.fields import param_text
from rq.message.filter import Filter, Traits
from rq.message.message import Message
from rq.proc.slices import in_slices
from rq.queues.owner.owner import Owner
from rq.spool import Spool, folders
from rq.spool.entry import Entry
from rq.words.states import HASHED, LIVE, State

BATCH = 1000  # folders that a thread lists between two turns of the loop


def is_meant(spool: Spool, wanted: Filter, msg_id: str) -> bool:
    """Whether a message is in the state that is wanted, and matches. One that cannot be
    read matches only what looks at nothing in it."""
    if spool.find(msg_id) is not wanted.state:
        return False
    if not (wanted.wants_message or wanted.wants_status):
        return True
    try:
        return filters.matches(wanted, _traits(spool, wanted, msg_id))
    except (BadMessage, NoSuchMessage):
        return False


def failure(spool: Spool, msg_id: str) -> str:
    """Return which failure a message in err, or an acknowledged one, stands for: the
    attempt, and when it ended. The attempt alone would not tell one that failed before it
    could start, past its deadline for example."""
    status = spool.status(msg_id)
    return f"{status.get('attempt', 0)}/{status.get('finished', 0)}"


def _traits(spool: Spool, wanted: Filter, msg_id: str) -> Traits:
    message = spool.read(msg_id) if wanted.wants_message else None
    fields = message.params if message else {}
    params = {name: param_text(value) for name, value in fields.items()}
    status = spool.status(msg_id) if wanted.wants_status else {}
    entry = spool.entry_of(msg_id)
    since = entry.since if entry is not None else names.created(msg_id)
    return Traits(
        msg_id=msg_id,
        src=(message and message.src) or "",
        params=params,
        visible=_visible(spool, message, params) if message and wanted.find else None,
        key=(message and message.unique_key) or "",
        by=(message and message.by) or "",
        cause=status.get("cause", ""),
        text=status.get("job_status", ""),
        since=since if wanted.state in LIVE else status.get("finished", since),
    )


def _visible(
    spool: Spool, message: Message, params: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the params as those see them who are no admins. Who may count what is meant
    must not find a secret letter by letter."""
    queue = spool.queue.name
    dest = secrets.dest_to_hide_by(queue, message.dest)
    visible = secrets.below_admin({**params, **dest}, queue)
    return {name: visible[name] for name in params}


async def chosen(owner: Owner, wanted: Filter) -> AsyncIterator[list[str]]:
    """Give the messages that are meant, a batch at a time: of done and relayed the newest
    first, of the other states the oldest. Who asks has to look again: some may have moved
    on by now."""
    async for ids in _candidates(owner, wanted):
        meant: list[str] = []

        def look(msg_id: str, meant: list[str] = meant) -> None:
            if is_meant(owner.spool, wanted, msg_id):
                meant.append(msg_id)

        await in_slices(ids, look)
        yield meant
        await asyncio.sleep(0)  # a batch alone may take less than a slice


async def _candidates(owner: Owner, wanted: Filter) -> AsyncIterator[list[str]]:
    """Give what may be meant: no more is looked at than a filter names."""
    if wanted.ids is not None:
        yield sorted(wanted.ids, reverse=wanted.state in HASHED)
        return
    async for ids in _in_state(owner, wanted.state):
        yield ids


async def _in_state(owner: Owner, state: State) -> AsyncIterator[list[str]]:
    """Give the messages of a state, and perhaps some that have just left it."""
    spool, moving = owner.spool, owner.spool.moving()
    if state in LIVE:
        for ids in _batches(spool.live()):
            yield ids
        return
    coming: list[str] = []

    def look(pair: tuple[str, Entry]) -> None:
        if pair[1].state is state:
            coming.append(pair[0])

    await in_slices(moving.items(), look)
    # What is still moving has ended last: of done and relayed it comes first.
    coming.sort(reverse=state in HASHED)
    first, last = (coming, []) if state in HASHED else ([], coming)
    for ids in _batches(first):
        yield ids
    there = _there(spool.queue, state, moving)
    run = owner.loop.run_in_executor
    while ids := await run(owner.pools.looks, _take, there):
        yield ids
    for ids in _batches(last):
        yield ids


def _batches(ids: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(ids), BATCH):
        yield ids[at : at + BATCH]


def _there(queue: QueueDir, state: State, but: Container[str]) -> Iterator[str]:
    """Give the messages whose folder lies in a state; for a thread, from the first on."""
    if state in HASHED:
        listed = folders.newest_first(queue, state)
    else:
        listed = reversed(folders.list_state(queue, state))
    yield from (msg_id for msg_id in listed if msg_id not in but)


def _take(ids: Iterator[str]) -> list[str]:
    return list(islice(ids, BATCH))
