"""What tells a story: an owner at work under strace, and marks of what it promises.

Before anything is done a mark says what may become of the message; after it was made
durable a mark says what it must be now. Marks are writes to one descriptor, so they lie
in the recording between the calls of the code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.spool import NOW, Clock, Owner, a_message, adopt
from power.trace import MARKS

from rq.errors import DiskFailed
from rq.files.durable import content
from rq.journal import sealing, segments
from rq.message.after import MOST_INLINE
from rq.message.causes import Cause
from rq.message.fields import Attachment
from rq.message.message import Message
from rq.proc import processes
from rq.spool import (
    attach,
    checkpoint,
    decisions,
    index,
    lost_attempts,
    results,
    transactions,
)
from rq.spool.transactions import Transaction
from rq.words.states import Event, Note, Role, State

BEFORE = "boot-before"  # the boot id of all recordings
SEGMENT = 16 * 1024  # bytes: so that segments change within a story
MAX_COUNT = 3
NOWHERE = "none"
ANY = -1  # a count that does not matter


@dataclass(frozen=True, slots=True)
class Seen:
    """What can be seen of a message; `none` when there is none."""

    state: str = NOWHERE
    count: int = 0
    attempt: int = 0
    due: float = NOW
    files: tuple[str, ...] = ()  # SHA-256 of its attachments
    key: str = ""
    txn: str = ""  # the open transaction that holds it
    lease: str = ""  # digest of the token that holds it
    held: bool = False  # by a person
    priority: int = 0
    waits: int = 0  # for so many others


@contextlib.contextmanager
def in_small(boot: str) -> Iterator[None]:
    """Work with small segments, between two starts of the machine, on a disk that
    shares nothing between files."""
    kept = segments.SMALLEST, content._reflink, processes.boot_id
    segments.SMALLEST, content._reflink = SEGMENT, lambda source, target: False
    processes.boot_id = lambda: boot
    try:
        yield
    finally:
        segments.SMALLEST, content._reflink, processes.boot_id = kept


def mark(said: dict[str, Any]) -> None:
    """Write a mark into the recording, if there is one."""
    with contextlib.suppress(OSError):
        os.write(MARKS, json.dumps(said).encode())


def take_marks() -> None:
    fd = os.open("/dev/null", os.O_WRONLY)
    os.dup2(fd, MARKS)
    os.close(fd)


class Tale:
    """One queue, what is done to it, and what was promised."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Clock()
        self.owner = Owner(root, self.clock)
        self.owner.open()
        self.may: dict[str, list[Seen]] = {}
        self.running: dict[str, Message] = {}
        self._fresh: set[str] = set()  # what was said and not yet promised
        self._known: dict[str, str] = {}  # a key: whose it is
        self._new_keys: set[str] = set()
        self._deposited: dict[str, tuple[str, ...]] = {}

    @property
    def spool(self):
        return self.owner.spool

    # ---- promises

    def now(self, msg_id: str) -> Seen:
        return self.may[msg_id][-1]

    def may_be(self, msg_id: str, **changes: Any) -> None:
        """Say what a message may be from now on."""
        before = self.may.setdefault(msg_id, [Seen()])
        before.append(replace(before[-1], **changes))
        self._fresh.add(msg_id)
        mark({"may": {msg_id: [asdict(one) for one in before]}})

    def must(self, *ids: str) -> None:
        """Say that what may be must be: it was answered."""
        said = {}
        for msg_id in ids or tuple(self._fresh):
            self.may[msg_id] = self.may[msg_id][-1:]
            said[msg_id] = [asdict(one) for one in self.may[msg_id]]
            self._fresh.discard(msg_id)
        known = {key: [self._known[key]] for key in self._new_keys}
        self._new_keys.clear()
        mark({"may": said, "known": known})

    def known(self, key: str, msg_id: str) -> None:
        """Say whose a key may be from now on."""
        before = self._known.get(key, "")
        self._known[key] = msg_id
        self._new_keys.add(key)
        mark({"known": {key: [before, msg_id]}})

    def together(self, name: str, *ids: str) -> None:
        """Say that these have moved on together or not at all."""
        old = {one: after_power_cut(self.now(one)).state for one in ids}
        mark({"together": {name: old}})

    # ---- messages

    def submit(self, filler: str = "", **more: Any) -> str:
        msg_id = self.spool.new_id()
        self.may_be(msg_id, state="que", key=more.get("key", ""))
        self.spool.submit(self.message(msg_id, param2=filler), **more)
        return msg_id

    def submit_as(self, unique_key: str, prepared: str = "") -> str:
        """Accept a message that keeps equal ones out for a time."""
        msg_id = prepared or self.spool.new_id()
        self.may_be(msg_id, state="que")
        self.known(f"last ={unique_key}", msg_id)
        self.spool.submit(self.message(msg_id, unique_key=unique_key))
        return msg_id

    def submit_after(self, number: int) -> str:
        """Accept a message that waits for others; a long list is written before its line,
        into a folder in prep."""
        msg_id = self.spool.new_id()
        if number > MOST_INLINE:
            self.may_be(msg_id, state="prep")
        self.may_be(msg_id, state="que", waits=number)
        after = [f"p/20270115.0800.00.000.{one}" for one in range(1, number + 1)]
        self.spool.submit(self.message(msg_id, after=after))
        return msg_id

    def stand(self, place: str, word: str) -> None:
        """Write down what was told of one that others wait for."""
        self.known(f"stands {place}", word)
        self.spool.stand([(place, word)])

    def free(self, msg_id: str) -> None:
        """Decide that a message may run."""
        due = max(self.now(msg_id).due, self.clock.now)
        self.may_be(msg_id, waits=0, due=due)
        self.spool.free(msg_id, {"end": "run", "by": "rule", "at": self.clock.now})

    def join(self, msg_id: str, key: str) -> None:
        """Let what was sent under a key join a message."""
        self.known(f"joined {key}", msg_id)
        self.spool.join(msg_id, key, "")

    def replace(self, old: str) -> str:
        """Let a message take the place of one that waits."""
        msg_id = self.spool.new_id()
        self.may[msg_id] = [Seen()]
        self.together(f"replacement of {old}", old, msg_id)
        self.may_be(old, state=NOWHERE)
        self.may_be(msg_id, state="que")
        self.spool.submit(self.message(msg_id))
        facts = {"cause": "replaced", "text": f"message {msg_id}", "outcome": "discard"}
        self.spool.fire(old, Event.DISCARD, Role.CREATOR, facts=facts)
        return msg_id

    def message(self, msg_id: str, **fields: Any) -> Message:
        fields = {"max_count": MAX_COUNT, "due": NOW, "param1": msg_id, **fields}
        return a_message(msg_id, **fields)

    def prepare(self, *files: bytes) -> str:
        msg_id = self.spool.new_id()
        self.may_be(msg_id, state="prep")
        self._fresh.discard(msg_id)
        self.spool.prepare(self.message(msg_id))
        for number, data in enumerate(files):
            self.attach(msg_id, f"file{number}", data)
        return msg_id

    def attach(self, msg_id: str, name: str, data: bytes) -> None:
        source = self.root / "source"
        source.write_bytes(data)
        fd = os.open(source, os.O_RDONLY)
        upload = attach.begin(self.spool, msg_id, name)
        attach.end(self.spool, upload, attach.copy(self.spool.dir_fd, fd, upload))
        os.close(fd)

    def commit_prepared(self, msg_id: str, **more: Any) -> None:
        message = self.spool.read(msg_id)
        if message.attachments:
            attach.verify(self.spool.dir_fd, message, False)
        attach.sweep(self.spool, message)
        files = sorted(one.sha256 for one in message.attachments.values())
        self.may_be(msg_id, state="que", files=tuple(files), key=more.get("key", ""))
        self.spool.submit(message, **more)

    def open_txn(self, key: str | None, head: str = "") -> Transaction:
        one = decisions.open_one(self.spool, key, 60.0, head)
        self.spool.commit()
        return one

    def choose(self, one: Transaction, *chosen: str) -> None:
        """Choose the messages of one that its head decides for."""
        sha256 = transactions.digest(chosen)
        transactions.write_manifest(self.owner.queue, one.txn_id, chosen)
        decisions.choose(self.spool, one, list(chosen), sha256)

    def decide_chain(
        self, head: Transaction, chain: list[Transaction], chosen: list[str]
    ) -> None:
        """Accept what was chosen in a head and in its chain, and discard the others."""
        members = [one for txn in (head, *chain) for one in txn.members]
        self.together(f"decision of {head.key}", *members)
        for msg_id in members:
            self.may_be(msg_id, state="que" if msg_id in chosen else NOWHERE, txn="")
        decisions.check_chain(self.spool, head, [txn.txn_id for txn in chain])
        decisions.commit(self.spool, head, [i for i in chosen if i in head.members])

    def prepare_in(self, one: Transaction, **fields: Any) -> str:
        msg_id = self.spool.new_id()
        self.may_be(msg_id, state="prep", txn=one.txn_id)
        self.spool.prepare_in(one.txn_id, self.message(msg_id, **fields))
        return msg_id

    def decide(self, one: Transaction, *chosen: str) -> None:
        """Accept the messages that were chosen, and discard the others."""
        members = list(one.members)
        self.together(f"decision of {one.key}", *members)
        for msg_id in members:
            self.may_be(msg_id, state="que" if msg_id in chosen else NOWHERE, txn="")
        if len(chosen) > transactions.INLINE:
            transactions.write_manifest(self.owner.queue, one.txn_id, chosen)
        if chosen:
            decisions.commit(self.spool, one, list(chosen))
        else:
            decisions.abort(self.spool, one)

    def claim(self, msg_id: str) -> None:
        """Claim a message once it is due."""
        self.clock.now = max(self.clock.now, self.now(msg_id).due)
        self.may_be(msg_id, state="run", attempt=self.now(msg_id).attempt + 1)
        self.running[msg_id] = self.spool.claim(msg_id, 0)

    def start(self, msg_id: str) -> None:
        """Claim a message and let its script run: written, and not yet synced if the
        acceptance of the message was before."""
        self.claim(msg_id)
        accepted = self.spool.entries[msg_id].said <= self.spool.journal.position.seq
        if not self.spool.journal.write() or not accepted:
            self.commit()
        self.spool.settle(msg_id)
        place = self.spool.run_folders.work_dir(msg_id)
        Path(place, "stdio.log").write_text("at work\n")

    def end(self, msg_id: str, event: Event = Event.FINISH, **more: Any) -> None:
        state = {Event.FINISH: "done", Event.RELAY: "relayed", Event.FAIL: "err"}
        riders = more.get("riders", [])
        if riders:
            self.together(f"riders of {msg_id}", msg_id, *riders)
        for one in [msg_id, *riders]:
            self.may_be(one, state=state[event])
        facts = {"cause": "done", "text": "said", "outcome": str(event)}
        line = self.spool.fire(
            msg_id,
            event,
            Role.QUEUE,
            facts=facts,
            spare=self.running.pop(msg_id),
            **more,
        )
        for one in riders:
            self.spool.ride(one, event, line)

    def resend(self, msg_id: str) -> None:
        message = self.running.pop(msg_id)
        message = message.with_(count=message.count + 1, due=message.due + 5)
        self.may_be(msg_id, state="que", count=message.count, due=message.due)
        facts = {"cause": "resend", "text": "later", "outcome": "retry"}
        self.spool.fire(msg_id, Event.RETRY, Role.QUEUE, message=message, facts=facts)

    def requeue(self, msg_id: str) -> None:
        """Give back a message whose script was stopped."""
        message = self.running.pop(msg_id)
        self.may_be(msg_id, state="que")
        facts = {"cause": "stop", "text": "stopped", "outcome": "retry"}
        self.spool.fire(msg_id, Event.REQUEUE, Role.QUEUE, message=message, facts=facts)

    def lease(self, msg_id: str) -> None:
        """Claim a message for somebody who has a token, once it is due."""
        self.clock.now = max(self.clock.now, self.now(msg_id).due)
        attempt = self.now(msg_id).attempt + 1
        token = f"{msg_id[-12:]}.{attempt}"
        self.may_be(msg_id, state="run", attempt=attempt, lease=token)
        self.spool.lease(msg_id, {"hash": token, "by": "root/x", "seconds": 60.0})

    def renew(self, *ids: str) -> None:
        held = [self.spool.leases[msg_id] for msg_id in ids]
        self.spool.lease_notes.renew(held, 120.0)

    def confirm(self, *ids: str) -> None:
        held = [self.spool.leases[msg_id] for msg_id in ids]
        self.spool.lease_notes.start(held)

    def cancel(self, msg_id: str) -> None:
        self.spool.lease_notes.cancel(self.spool.leases[msg_id], "anna")

    def hand_in(self, msg_id: str, data: bytes) -> dict[str, Attachment]:
        """Take a result file of an attempt, and make it durable."""
        attempt = self.now(msg_id).attempt
        source = self.root / "source"
        source.write_bytes(data)
        with (
            source.open("rb") as file,
            results.opened(self.spool, msg_id, attempt) as place,
        ):
            taken = results.take(place, file.fileno(), "result", 2**20)
        wanted = {"result": taken.sha256}
        return results.verify(self.spool.dir_fd, msg_id, attempt, wanted)

    def finish(
        self, msg_id: str, files: dict[str, Attachment] | None = None, **more: Any
    ) -> None:
        """End a leased attempt by a word of its holder."""
        files, message = files or {}, None
        digests = tuple(sorted(file.sha256 for file in files.values()))
        lease = {"hash": self.now(msg_id).lease, "by": "root/x", "word": "w"}
        self.may_be(msg_id, state="done", lease="", files=digests)
        if files:
            attempt = self.now(msg_id).attempt
            message = self.spool.read(msg_id)
            message = message.with_(attachments=files, attempt=attempt)
            more["results"] = list(files)
        facts = {"cause": "done", "text": "said", "outcome": "done"}
        self.spool.fire(
            msg_id,
            Event.FINISH,
            Role.QUEUE,
            message=message,
            facts=facts,
            lease=lease,
            **more,
        )

    def run_out(self, msg_id: str) -> None:
        """Take a message back whose holder is not heard of."""
        lease = {"hash": self.now(msg_id).lease, "by": "root/x", "seconds": 60.0}
        changes = _recovered(self.now(msg_id))
        self.may_be(msg_id, lease="", **changes)
        lost = lost_attempts.Lost(Cause.LEASE_ENDED, "not heard of", lease)
        lost_attempts.recover(self.spool, msg_id, False, lost)

    def retry(self, msg_id: str) -> None:
        """What a person does to one in err."""
        attempt = self.now(msg_id).attempt
        message = self.spool.read(msg_id).with_(count=0, due=NOW, attempt=attempt)
        self.may_be(msg_id, state="que", count=0, due=NOW)
        self.spool.fire(msg_id, Event.REQUEUE, Role.CREATOR, message=message)

    def reschedule(self, msg_id: str, due: float) -> None:
        self.may_be(msg_id, due=due)
        self.spool.reschedule(msg_id, due)

    def steer(self, msg_id: str, priority: int) -> None:
        """Change a priority."""
        self.may_be(msg_id, priority=priority)
        self.spool.reschedule(msg_id, priority=priority)

    def hold(self, msg_id: str) -> None:
        self.may_be(msg_id, held=True)
        self.spool.hold(msg_id, {"by": "ann", "why": "disk swap", "since": NOW})

    def release(self, msg_id: str) -> None:
        self.may_be(msg_id, held=False)
        self.spool.release(msg_id, "ann")

    def dismiss(self, msg_id: str) -> None:
        self.may_be(msg_id, state="dismissed")
        self.spool.fire(msg_id, Event.DISMISS, Role.CREATOR)

    def reopen(self, msg_id: str) -> None:
        self.may_be(msg_id, state="err")
        self.spool.fire(msg_id, Event.REOPEN, Role.CREATOR)

    def move(self, msg_id: str) -> None:
        """Let a message go on in another queue."""
        self.may_be(msg_id, state="relayed")
        facts = {"cause": "moved", "text": "moved by anna", "outcome": "relayed"}
        self.spool.fire(msg_id, Event.MOVE, Role.CREATOR, facts=facts)

    def delete(self, msg_id: str) -> None:
        self.may_be(msg_id, state=NOWHERE, key="")
        self.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)

    def expire(self, state: State, *ids: str) -> None:
        self.together(f"expiry of {ids[0]}", *ids)
        for one in ids:
            self.may_be(one, state=NOWHERE)
        assert self.spool.expire(state, ids) == list(ids)

    def deposit(self, name: str, data: bytes = b"") -> None:
        """Put a message through the other door, as any program may."""
        aside = self.root / f"aside.{name}"
        (aside / "attach").mkdir(parents=True, exist_ok=True)
        asked = {"dest": "q", "param1": name, "max_count": MAX_COUNT, "due": NOW}
        (aside / "msg").write_text(json.dumps(asked))
        if data:
            (aside / "attach" / "file").write_bytes(data)
        os.rename(aside, self.owner.queue.path / "new" / name)
        files = (hashlib.sha256(data).hexdigest(),) if data else ()
        self._deposited[name] = files

    def adopt(self) -> None:
        """Let the owner look at its door."""
        taken = {one.at_new for one in self.spool.unsettled.values()}
        lying = sorted(set(os.listdir(self.owner.queue.path / "new")) - taken)
        known = {one: may[-1].state for one, may in self.may.items()}
        names = [one for one in lying if known.get(one, NOWHERE) == NOWHERE]
        for name in names:
            self.may_be(name, state="que", files=self._deposited[name])
        adopted = adopt(self.spool)
        assert [one.msg_id for one in adopted.messages] == names, (adopted, names)

    def sent(self) -> None:
        """Let all that is owed be delivered."""
        for seq, number in list(self.spool.owed):
            self.spool.sent(seq, number)

    # ---- what the process does

    def commit(self) -> None:
        self.spool.commit()
        self.must()

    def commit_fails(self) -> None:
        """The disk says no: nothing is promised."""
        try:
            self.spool.commit()
        except DiskFailed:
            return
        raise AssertionError("the sync did not fail")

    def apply(self) -> None:
        self.commit()
        self.spool.settle_all()

    def checkpoint(self) -> None:
        self.apply()
        point = checkpoint.begin(self.spool, BEFORE)
        checkpoint.finish(self.spool.dir_fd, self.owner.queue, point)

    def begin_checkpoint(self) -> checkpoint.Checkpoint:
        """Begin one while folders lag; what it waits for is made before it ends."""
        self.commit()
        return checkpoint.begin(self.spool, BEFORE)

    def end_checkpoint(self, point: checkpoint.Checkpoint) -> None:
        for msg_id in list(self.spool.lagging.barrier):
            self.spool.settle(msg_id)
        checkpoint.finish(self.spool.dir_fd, self.owner.queue, point)

    def write_index(self) -> None:
        self.commit()
        writing = self.begin_index()
        while writing.write_slice():
            pass
        writing.finish()

    def begin_index(self) -> index.Writing:
        writer = self.spool.journal
        lines = index.lines(
            writer.journal_id,
            writer.position.seq,
            self.spool.entries,
            self.spool.keys,
            self.spool.txns,
            ended=self.spool.ended_leases,
            uniques=self.spool.uniques,
        )
        return index.Writing(self.spool.dir_fd, lines)

    def seal(self) -> None:
        self.commit()
        self.spool.journal.seal()

    def forget_history(self, upto: int) -> None:
        queue, journal_id = self.owner.queue, self.spool.journal.journal_id
        sealing.forget(queue.journal_dir, journal_id, upto, size=0)

    def checkpoint_fails(self) -> None:
        """The disk says no: the owner writes that down, and will end."""
        try:
            self.checkpoint()
        except OSError:
            self.spool.note(Note.SUSPECT, reason="EIO")
            self.commit()
            return
        raise AssertionError("the sync did not fail")

    # ---- ends

    def stop(self) -> None:
        for msg_id in list(self.running):
            self.requeue(msg_id)
        self.owner.stop()
        self.must()

    def park(self) -> None:
        """Stop as a queue that is parked, and be woken."""
        self.commit()
        end = self.owner.park()
        self.must()
        self.owner.open(parked_at=end)
        self.must()

    def crash(self) -> None:
        """Die as by kill -9: what was written stays, for now."""
        self.owner.crash()
        self.running.clear()

    def crash_and_start(self) -> None:
        """Die as by kill -9, and start again."""
        self.crash()
        self.again()

    def again(self) -> None:
        """Start again, and see what has become of everything."""
        self.owner.open()
        for msg_id, may in self.may.items():
            found = [after_power_cut(one) for one in may]
            self.may[msg_id] = [one for one in found if self._is(msg_id, one)][-1:]
            assert self.may[msg_id], f"{msg_id} is none of {found}"
            self._fresh.add(msg_id)
        self.must()

    def _is(self, msg_id: str, seen: Seen) -> bool:
        """Whether a message has become what it might."""
        state = self.spool.find(msg_id)
        if seen.state != (NOWHERE if state is None else state):
            return False
        if state is not State.QUE:
            return True
        entry = self.spool.entries[msg_id]
        waits = len(entry.after.ids) if entry.after else 0
        known = (entry.count, entry.attempt, entry.due, entry.held, waits)
        promised = (seen.count, seen.attempt, seen.due, seen.held, seen.waits)
        return (*known, entry.rank.priority) == (*promised, seen.priority)


def _recovered(seen: Seen) -> dict[str, Any]:
    """Return what an attempt that was lost makes of a message."""
    if seen.count == ANY:
        return {"state": "que"}
    count = seen.count + 1
    return {"state": "err" if count >= MAX_COUNT else "que", "count": count}


def after_power_cut(seen: Seen) -> Seen:
    """Return what recovery makes of a message that was so."""
    if seen.state != "run" or seen.lease:
        return seen
    return replace(seen, **_recovered(seen))


def read_may(said: list[dict[str, Any]]) -> Iterator[Seen]:
    for one in said:
        yield after_power_cut(Seen(**{**one, "files": tuple(one["files"])}))
