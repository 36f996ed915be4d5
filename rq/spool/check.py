"""Checks whether journal, folders and counters agree, and tells what does not.

`check` is for a queue without owner: it compares the folders with what recovery would
do. `check(fix=True)` runs that recovery, and starts no script. A running owner checks
its own queue by `check_live`.
"""

from __future__ import annotations

import copy
import os
import stat
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rq import config, names, replies
from rq.errors import BadConfig, BadMessage, Damaged, NoSuchMessage, Refused
from rq.files import durable
from rq.journal import gaps, history
from rq.layout import MSG, QueueDir
from rq.proc import locks
from rq.spool import (
    checkpoint,
    fold,
    folders,
    recovery,
    recovery_apply,
    restored,
    rows,
)
from rq.spool.entry import Counts
from rq.spool.folders import Aside
from rq.spool.recount import Recount
from rq.spool.rows import Rows
from rq.spool.store import Rule, Spool
from rq.words import visible
from rq.words.states import COUNTED, FINAL, HASHED, State


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be."""

    kind: str
    subject: str  # a message or a path
    text: str

    def to_json(self) -> replies.Problem:
        return {"kind": self.kind, "subject": self.subject, "text": self.text}


def check(queue: QueueDir, fix: bool = False) -> list[Problem]:
    """Check a queue that has no owner; Refused when it has one.

    With `fix` the journal is replayed onto the folders first, and a clean end written;
    what was mended in the journal for that is told, too.
    """
    recovery.check_link(queue)
    lock = locks.lock_soon(queue.lock)
    if lock is None:
        raise Refused(f"queue {queue.name} is running: stop RQ first (`rq down`)")
    try:
        mended: list[Problem] = []
        if fix:
            if (why := restored.why_waiting(queue)) is not None:
                raise Refused(f"queue {queue.name}: {why}")
            said = gaps.fill_gaps(queue.journal_dir)
            mended = [
                Problem("mended", str(queue.journal), sentence) for sentence in said
            ]
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
    opened = recovery.open_spool(queue, retry=_rule(queue))
    try:
        recovery_apply.count_final(opened.spool)
        close_cleanly(opened.spool)
    except OSError as error:
        why = opened.spool.stuck or error.strerror or str(error)
        return [Problem("stuck", queue.name, f"no clean end can be written: {why}")]
    else:
        return []
    finally:
        os.close(opened.lock)
        opened.spool.close()


def _rule(queue: QueueDir) -> Rule:
    """Return the setting `retry`; that of a config that cannot be read is none."""
    try:
        retry = config.read_queue(queue).retry
    except BadConfig:
        retry = None
    return lambda: retry


def close_cleanly(spool: Spool) -> None:
    """Settle all, write the clean end and its checkpoint; blocks."""
    spool.settle_all()
    checkpoint.stop(spool)


def _problems(queue: QueueDir) -> Iterator[Problem]:
    if (why := restored.why_waiting(queue)) is not None:
        yield Problem("copied", queue.name, why)
    if not recovery.stopped_cleanly(queue):
        text = (
            "not stopped cleanly: `rq check --fix` replays the journal onto the folders"
        )
        damage = list(_damage(queue))  # with any, it cannot be replayed
        yield from damage or [Problem("unclean", queue.name, text)]
        return
    yield from miscounted(queue)
    wrong = list(_gaps(queue)) or list(_damage(queue))
    # With a gap, or damage, the journal cannot be read over it.
    yield from wrong or _bad_rows(queue, recovery.rows_left(queue))
    yield from check_folders(queue)


def miscounted(queue: QueueDir) -> Iterator[Problem]:
    """Give the counts of a stopped queue that are wrong. Live messages and those in err
    are listed at each start; the others a start believes as the last end counted them,
    and looks at them when it has begun."""
    point = checkpoint.read(queue)
    if point is None or not recovery.stopped_cleanly(queue):
        return
    for state in HASHED:
        there = len(folders.list_state(queue, state))
        recounted = Recount(state, point.counts.of(state), there)
        if recounted.is_wrong:
            yield Problem("count", str(state), recounted.advice)


def _damage(queue: QueueDir) -> Iterator[Problem]:
    """Read every line of the journal: a start reads the newest only."""
    try:
        for _ in history.events_after(queue.journal_dir, 0, pack=fold.pack):
            pass
    except Damaged as error:
        yield Problem("damage", str(queue.journal), str(error))


def _gaps(queue: QueueDir) -> Iterator[Problem]:
    for journal in history.journals(queue.journal_dir):
        last = None
        for segment in history.sealed_segments(queue.journal_dir, journal):
            if last is not None and segment.first > last + 1:
                text = f"events {last + 1} to {segment.first - 1} are missing"
                yield Problem("gap", str(segment.path), text)
            last = segment.last


def _bad_rows(queue: QueueDir, left: Iterable[Rows]) -> Iterator[Problem]:
    """Read the files of rows that are accepted and have still to become messages."""
    for file in left:
        try:
            rows.read(queue, file)
            why = file.refused
        except (Damaged, OSError) as error:
            why = str(error)
        if why:
            text = f"{why}; {file.left:,} messages wait there"
            yield Problem("rows", rows.path(queue, file.file).name, text)
    for name in rows.aside(queue):
        text = "nothing tells any more whether these rows were accepted: look at them"
        yield Problem("rows", name, text)


# ---- of a running owner

# Calls the second for each of the first, and lets others have their turn in between.
Slices = Callable[[Iterable[Any], Callable[[Any], Any]], Awaitable[None]]


@dataclass(slots=True)
class _Survey:
    """What lay on disk while a thread looked."""

    seen: dict[str, State] = field(default_factory=dict)
    again: list[tuple[str, State]] = field(default_factory=list)  # seen before
    number: Counter[State] = field(default_factory=Counter)
    odd: list[tuple[Problem, State | None]] = field(default_factory=list)


async def check_live(spool: Spool, aside: Aside, slices: Slices) -> list[Problem]:
    """Check the queue of a running owner, which goes on meanwhile.

    Its folders agree with its journal first. What changes while a thread looks counts as
    it was before, and what looks wrong is looked at again in a turn of the owner.
    """
    await _settled(spool, slices)
    # Of what changes from now on, and of what is on its way: the state at this moment.
    waiting = [copy.copy(file) for file in spool.txns.stock]
    touched = {msg_id: entry.state for msg_id, entry in spool.unsettled.items()}
    counted = Counts(dict(spool.counts.by_state))
    with spool.events.watched_by(touched):
        survey: _Survey = await aside(_surveyed, spool.queue)
    bad_rows = await aside(lambda: list(_bad_rows(spool.queue, waiting)))
    problems = await _miscounted(counted, survey, touched, slices)

    def look(msg_id: str) -> None:
        entry = spool.entries.get(msg_id)
        if entry is None or msg_id in touched:
            return
        if survey.seen.get(msg_id) is not entry.state:
            text = f"no folder in {entry.state}"
            survey.odd.append((Problem("missing", msg_id, text), entry.state))

    await slices(list(spool.entries), look)
    await slices(survey.odd, lambda odd: problems.extend(_still(spool, *odd)))
    used = rows.names(waiting) - rows.names(spool.txns.stock)  # meanwhile
    return problems + [odd for odd in bad_rows if odd.subject not in used]


async def _settled(spool: Spool, slices: Slices) -> None:
    """Make all folders agree with what the journal says now."""

    def settle(msg_id: str) -> None:
        if msg_id in spool.unsettled:
            if spool.journal.pending:
                spool.commit()
            spool.settle(msg_id)

    if spool.journal.pending:
        spool.commit()
    await slices(list(spool.unsettled), settle)
    spool.gone.try_again()
    await slices(range(len(spool.gone)), lambda _: spool.gone.remove_next())


async def _miscounted(
    counted: Counts, survey: _Survey, touched: Mapping[str, State], slices: Slices
) -> list[Problem]:
    number = survey.number

    def as_before(change: tuple[str, State]) -> None:
        msg_id, state = change
        if msg_id in survey.seen:
            number[survey.seen[msg_id]] -= 1
        number[state] += 1

    await slices(touched.items(), as_before)
    for msg_id, state in survey.again:
        number[state] -= msg_id in touched
    recounted = (Recount(state, counted.of(state), number[state]) for state in COUNTED)
    return [
        # Live messages are those that the journal tells of, wherever their folders are.
        Problem(
            "count", again.state, again.advice if again.state in FINAL else again.text
        )
        for again in recounted
        if again.is_wrong
    ]


def _surveyed(queue: QueueDir) -> _Survey:
    """Look at every message folder; for a thread."""
    survey = _Survey()
    for state in COUNTED:
        for msg_id in folders.list_state(queue, state):
            survey.number[state] += 1
            if msg_id in survey.seen:
                survey.again.append((msg_id, state))
                text = f"its folder is in {survey.seen[msg_id]} and in {state}"
                survey.odd.append((Problem("twice", msg_id, text), state))
            else:
                survey.seen[msg_id] = state
            odd = _check_message(queue, state, msg_id)
            survey.odd.extend((problem, state) for problem in odd)
    survey.odd.extend((problem, None) for problem in _orphans(queue))
    return survey


def _still(spool: Spool, odd: Problem, state: State | None) -> Iterator[Problem]:
    """Look in a turn of the owner whether a thread has seen right."""
    queue, msg_id = spool.queue, odd.subject
    if state is None:
        going = msg_id in spool.gone or not os.path.lexists(queue.path / msg_id)
        yield from [] if msg_id.startswith("gone/") and going else [odd]
        return
    entry = spool.entries.get(msg_id)
    if entry is not None and (entry.busy or entry.state is State.RUN):
        return
    if msg_id in spool.unsettled:
        spool.commit()
        spool.settle(msg_id)
    places = [place for place in COUNTED if os.path.isdir(queue.message(place, msg_id))]
    now = state if state in places else spool.find(msg_id)
    if odd.kind == "twice":
        yield from [odd] if len(places) > 1 else []
    elif odd.kind == "missing":
        yield from [odd] if now is not None and now not in places else []
    elif now is not None and now is not State.RUN:
        again = _check_message(queue, now, msg_id)
        yield from (problem for problem in again if problem.kind == odd.kind)


# ---- folders


def check_folders(queue: QueueDir) -> Iterator[Problem]:
    """Look at every message folder: one place each, whole, with the right modes."""
    yield from (problem for problem, _ in _surveyed(queue).odd)


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
    if message.after_file is not None and not message.after:
        text = "its file `after` is gone, or not the one that was accepted"
        yield Problem("after", msg_id, text)
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
        try:
            actual = stat.S_IMODE(os.lstat(name).st_mode)
        except FileNotFoundError:
            return  # it has moved on
        if actual & ~mode & 0o007:
            text = f"{os.path.basename(name)} has mode {actual:04o}: others may use it"
            yield Problem("mode", msg_id, text)


def _orphans(queue: QueueDir) -> Iterator[Problem]:
    for state in ("prep", "que", "run", "err"):
        for name in os.listdir(queue.path / state):
            if not names.is_msg_id(name.removeprefix(".")):
                text = visible.line(name)
                yield Problem("orphan", f"{state}/{text}", "it is not a message")
    for name in os.listdir(queue.path / "gone"):
        text = "it was being removed, and is still there"
        yield Problem("orphan", f"gone/{visible.line(name)}", text)
