"""Do journal, folders and counters agree? Finds and names; mends only when told to.

For a queue without owner `check` compares the folders with what recovery would do;
`check(fix=True)` does it, without starting anything. A live queue checks itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rq import durable, names, visible
from rq.errors import BadMessage, Damaged, NoSuchMessage, Refused
from rq.layout import MSG, QueueDir
from rq.proc import locks
from rq.spool import act, checkpoint, folders, history, mend, place, recovery
from rq.spool.entry import COUNTED
from rq.spool.store import Spool
from rq.states import HASHED, State


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be."""

    kind: str
    subject: str  # a message or a path
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "subject": self.subject, "text": self.text}


def check(queue: QueueDir, fix: bool = False) -> list[Problem]:
    """Check a queue that has no owner; Refused when it has one.

    With `fix` the journal is replayed onto the folders first, and a clean end written;
    what was mended in the journal for that is told, too.
    """
    lock = locks.lock(queue.lock)
    if lock is None:
        raise Refused(f"queue {queue.name} has a running owner: ask it")
    try:
        mended: list[Problem] = []
        if fix:
            if (why := place.why_waiting(queue)) is not None:
                raise Refused(f"queue {queue.name}: {why}")
            said = mend.fill_gaps(queue)
            mended = [Problem("mended", str(queue.journal), one) for one in said]
            os.close(lock)
            lock = None
            mended += _replay(queue)
        return [*mended, *_problems(queue)]
    except Damaged as error:
        return [Problem("damage", str(queue.journal), str(error))]
    finally:
        if lock is not None:
            os.close(lock)


def _replay(queue: QueueDir) -> list[Problem]:
    """Replay the journal onto the folders; return what keeps some of them from it."""
    opened = recovery.open_spool(queue)
    try:
        act.count_final(opened.spool)
        close_cleanly(opened.spool)
    except OSError as error:
        why = opened.spool.stuck or error.strerror or str(error)
        return [Problem("stuck", queue.name, f"no clean end can be written: {why}")]
    else:
        return []
    finally:
        os.close(opened.lock)
        opened.spool.close()


def close_cleanly(spool: Spool) -> None:
    """Settle all, write the clean end and its checkpoint; blocks."""
    spool.settle_all()
    checkpoint.stop(spool)


def _problems(queue: QueueDir) -> Iterator[Problem]:
    if (why := place.why_waiting(queue)) is not None:
        yield Problem("copied", queue.name, why)
    if not recovery.stopped_cleanly(queue):
        yield Problem(
            "unclean",
            queue.name,
            "not stopped cleanly: `rq check --fix` replays the journal onto the folders",
        )
        for _ in history.events_after(queue, 0, packed=True):
            pass  # Damaged says so
        return
    point = checkpoint.read(queue)
    listed = folders.count(queue)
    # The others are counted anew at each start: a hand may have moved them.
    for state in HASHED:
        kept = point.counts.of(state) if point else listed.of(state)
        if kept != listed.of(state):
            text = f"counted {kept}, there are {listed.of(state)}"
            yield Problem("count", str(state), text)
    yield from _gaps(queue)
    yield from check_folders(queue)


def _gaps(queue: QueueDir) -> Iterator[Problem]:
    for journal in history.journals(queue):
        last = None
        for one in history.sealed_segments(queue, journal):
            if last is not None and one.first > last + 1:
                text = f"events {last + 1} to {one.first - 1} are missing"
                yield Problem("gap", str(one.path), text)
            last = one.last


def check_live(spool: Spool) -> list[Problem]:
    """Check the queue of a running owner, after its folders agree with its journal."""
    if spool.journal.pending:
        spool.commit()
    spool.settle_all()
    listed = folders.count(spool.queue)
    problems = [
        Problem("count", state, f"counted {spool.counts.of(state)}, there are {number}")
        for state in COUNTED
        if spool.counts.of(state) != (number := listed.of(state))
    ]
    busy = {i for i, one in spool.entries.items() if one.busy or one.state is State.RUN}
    problems.extend(
        one for one in check_folders(spool.queue) if one.subject not in busy
    )
    for msg_id, entry in spool.entries.items():
        if not os.path.isdir(spool.queue.message(entry.state, msg_id)):
            problems.append(Problem("missing", msg_id, f"no folder in {entry.state}"))
    return problems


def check_folders(queue: QueueDir) -> Iterator[Problem]:
    """Look at every message folder: one place each, whole, with the right modes."""
    seen: dict[str, State] = {}
    for state in COUNTED:
        for msg_id in folders.list_state(queue, state):
            if msg_id in seen:
                text = f"it lies in {seen[msg_id]} and in {state}"
                yield Problem("twice", msg_id, text)
            seen[msg_id] = state
            yield from _check_message(queue, state, msg_id)
    yield from _orphans(queue)


def _check_message(queue: QueueDir, state: State, msg_id: str) -> Iterator[Problem]:
    path = queue.message(state, msg_id)
    try:
        message = folders.read_message(queue, state, msg_id)
    except (BadMessage, NoSuchMessage) as error:
        if state not in (State.ERR, State.DISMISSED):
            yield Problem("torn", msg_id, f"{error} (in {state})")
        return
    if state is State.RUN:
        return  # its script may do what it likes in there
    yield from _check_modes(msg_id, str(path))
    wanted, there = set(message.attachments), folders.attachments(queue, state, msg_id)
    odd = wanted.symmetric_difference(there)
    if not wanted and names.is_ancestors(msg_id):
        return  # the ancestor did not name them in msg
    if state is State.PREP:
        odd &= wanted  # one that is not yet in msg goes at the commit
    if odd:
        text = visible.line(", ".join(sorted(odd)))
        yield Problem("attachment", msg_id, f"msg and attach/ differ in: {text}")


def _check_modes(msg_id: str, path: str) -> Iterator[Problem]:
    for name, mode in ((path, durable.DIR_MODE), (f"{path}/{MSG}", durable.FILE_MODE)):
        found = stat.S_IMODE(os.lstat(name).st_mode)
        if found & ~mode & 0o007:
            text = f"{os.path.basename(name)} has mode {found:04o}: others may use it"
            yield Problem("mode", msg_id, text)


def _orphans(queue: QueueDir) -> Iterator[Problem]:
    for state in ("prep", "que", "run", "err"):
        for name in os.listdir(queue.path / state):
            if not names.is_msg_id(name.removeprefix(".")):
                shown = visible.line(name)
                yield Problem("orphan", f"{state}/{shown}", "it is not a message")
    for name in os.listdir(queue.path / "gone"):
        yield Problem("orphan", f"gone/{visible.line(name)}", "it was on its way out")
