"""How the messages of a queue stand, in the words that those wait for who name them.

An owner answers of its own messages from memory and folders; its reply leaves after the
sync, as every reply does, so what is told is durable. It keeps nothing on disk for those
who ask: in memory it remembers who wants a hint, and a hint that is lost costs time alone.
A queue without a process is read from its folders, which tell everything after a clean
stop; after any other end nothing is told before its owner has recovered it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from rq import names
from rq.layout import QueueDir
from rq.message.after import Standing
from rq.message.causes import Cause
from rq.message.standings import of_end
from rq.proc.slices import in_slices
from rq.queues.owner.owner import PREPARED, Owner
from rq.replies import Result
from rq.spool import folders, journal_search, stopped_cleanly
from rq.spool.record import Record
from rq.words.states import FINAL, LIVE, State

_MAY_GO_ON = frozenset({State.RELAYED, State.DISMISSED})  # one that was moved or edited
_UNKNOWN = str(Standing.UNKNOWN)
_MOST_LOST = 100_000  # messages of which it is remembered that nothing tells of them


def of_own(owner: Owner, msg_id: str) -> str:
    """Return how a message of this queue stands, as far as that is known without the
    journal."""
    state = owner.spool.find(msg_id)
    if state is None:
        joined = owner.spool.accepted_with(f"{PREPARED}{msg_id}")
        is_known = joined is not None and joined.joined
        return _on(f"{owner.name}/{joined.msg_id}") if joined and is_known else _UNKNOWN
    if state in LIVE:
        return str(Standing.WAITING)
    result = owner.spool.status(msg_id)
    if _is_on_its_way(result):
        owed = any(entry.msg_id == msg_id for entry in owner.spool.owed.values())
        return str(Standing.WAITING if owed else Standing.RELAYED)
    return _of_end(state, result)


def _is_on_its_way(result: Result) -> bool:
    """Whether a message was moved, and nothing tells yet under which id it goes on."""
    return result.get("cause") == Cause.MOVED and "goes_on" not in result


def place_of(owner: Owner, msg_id: str, state: State) -> str:
    """Return `goes_on QUEUE/ID` of a message that was moved or edited, `que` while it is
    still on its way; else "". Reads no file of one that has ended well here."""
    if state not in _MAY_GO_ON:
        return ""
    said = of_own(owner, msg_id)
    if said == Standing.WAITING:
        return str(State.QUE)
    return said if said.startswith(Standing.GOES_ON) else ""


def _on(place: str) -> str:
    return f"{Standing.GOES_ON} {place}"


def _of_end(state: State, result: Result) -> str:
    place = result.get("goes_on")
    return _on(place) if place else str(of_end(state, result))


async def of_all(owner: Owner, ids: Sequence[str], queue: str) -> Mapping[str, str]:
    """Return how messages of this queue stand; `queue` gets a hint when they change. Of
    those that are gone the journal tells whether a person has removed them."""
    answers: dict[str, str] = {}

    def look(msg_id: str) -> None:
        answers[msg_id] = of_own(owner, msg_id)
        owner.spool.events.want_hint(msg_id, queue)

    await in_slices(ids, look)
    gone = [
        i for i, said in answers.items() if said == _UNKNOWN and i not in owner.lost
    ]
    if gone:
        await owner.committed()  # the line of one may be in no file yet
        run = owner.loop.run_in_executor
        removed = await run(owner.pools.looks, _removed, owner.queue, gone)
        answers.update(removed)
        if len(owner.lost) > _MOST_LOST:
            owner.lost.clear()
        owner.lost.update(dict.fromkeys(i for i in gone if i not in removed))
    await _settle_ended(owner, ids)
    return answers


async def _settle_ended(owner: Owner, ids: Sequence[str]) -> None:
    """Bring folders of messages that have ended to where results and attachments are looked
    for, however far folders lag: who hears of the end may start a script that reads them."""
    spool = owner.spool
    late = [i for i in ids if spool.lags(i) and spool.find(i) in FINAL]
    if not late:
        return
    await owner.committed()

    def settle(msg_id: str) -> None:
        with contextlib.suppress(OSError):  # the disk keeps it: it is told without
            spool.settle(msg_id)

    await in_slices(late, settle)


def _removed(queue: QueueDir, ids: Sequence[str]) -> Mapping[str, str]:
    """Return of messages that are gone those that were removed by a person, or for an
    equal one that stands for them."""
    lines = journal_search.discards(queue, ids) if ids else {}
    return {msg_id: _of_removal(queue.name, line) for msg_id, line in lines.items()}


def _of_removal(queue: str, line: Record) -> str:
    other = line.get("text", "").removeprefix("message ")
    if line.get("cause") in (Cause.REPLACED, Cause.JOINED) and names.is_msg_id(other):
        return _on(f"{queue}/{other}")
    return str(Standing.DELETED)


def in_folders(
    queue: QueueDir, ids: Sequence[str], owes_nothing: bool = False
) -> Mapping[str, str] | None:
    """Return how messages stand of a queue without a process; None: that cannot be
    known, or one has been started meanwhile. `owes_nothing`: as a parked one, of which
    nothing is on its way, though it may stay so for ever. Blocks."""
    if not queue.path.is_dir() or not stopped_cleanly(queue):
        return None
    answers = {msg_id: _in_folder(queue, msg_id, owes_nothing) for msg_id in ids}
    gone = [msg_id for msg_id, said in answers.items() if said == _UNKNOWN]
    answers |= _removed(queue, gone)
    return answers if stopped_cleanly(queue) else None


def _in_folder(queue: QueueDir, msg_id: str, owes_nothing: bool) -> str:
    state = folders.find(queue, msg_id)
    if state is None:
        return _UNKNOWN
    if state in LIVE:
        return str(Standing.WAITING)
    result = folders.read_status(queue, state, msg_id)
    if _is_on_its_way(result) and not owes_nothing:
        return str(Standing.WAITING)  # as far as can be known without its owner
    return _of_end(state, result)
