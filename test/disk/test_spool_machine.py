"""Any course of events over a real spool, with crashes anywhere, against a plain model.

The model knows two worlds: what is promised (`safe`: a commit returned, or the lines were
written, which a kill -9 does not undo) and what has been said since (`now`). After a
crash the spool must be exactly one of the two, with lost attempts counted once.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from harness.spool import NOW, Clock, Owner, a_message, check_live
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rq.errors import WrongState
from rq.files.durable import crash_points
from rq.layout import folder
from rq.spool import check, checkpoint, decisions, folders, index, transactions
from rq.spool.transactions import Standing
from rq.words.states import COUNTED, Event, Role, State

MAX_COUNT = 3
MESSAGES = 8
PICK = st.integers(0, MESSAGES)


class Crash(BaseException):
    """The process ends here."""


@dataclass(frozen=True)
class Known:
    """What the model knows of a message."""

    state: State
    count: int = 0
    attempt: int = 0
    due: float = NOW
    held: bool = False


@dataclass
class World:
    """What the model knows of a queue."""

    messages: dict[str, Known] = field(default_factory=dict)
    owed: set[tuple[int, int]] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)
    # transaction: how it stands, and what is prepared in it
    txns: dict[str, tuple[Standing, list[str]]] = field(default_factory=dict)

    def recovered(self, now: float) -> World:
        """Return the world after the crash of its owner: what ran was lost, and is due
        again at once, though the clock was put back since it was claimed."""
        found = {i: _lost(one, now) for i, one in self.messages.items()}
        return World(found, set(self.owed), dict(self.keys), dict(self.txns))


def _lost(one: Known, now: float) -> Known:
    if one.state is not State.RUN:
        return one
    count = one.count + 1
    state = State.ERR if count >= MAX_COUNT else State.QUE
    return replace(one, state=state, count=count, due=min(one.due, now))


@contextlib.contextmanager
def dying_after(points: int):
    """Let the process die at the n-th point where it could."""
    left = [points]

    def passing(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash

    before, crash_points.hook = crash_points.hook, passing
    try:
        yield
    finally:
        crash_points.hook = before


class SpoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="rq-machine-"))
        self.clock = Clock()
        self.owner = Owner(self.path, self.clock)
        self.owner.open()
        self.now, self.safe = World(), World()
        self.running: dict[str, Any] = {}
        self.point: checkpoint.Checkpoint | None = None
        self.writing: index.Writing | None = None

    @property
    def spool(self):
        return self.owner.spool

    # ---- helpers

    def pick(self, number: int, *states: State) -> str | None:
        """Return some message that is in one of `states`."""
        found = [i for i, one in self.now.messages.items() if one.state in states]
        return found[number % len(found)] if found else None

    def know(self, msg_id: str, **changes: Any) -> None:
        one = self.now.messages.get(msg_id, Known(State.NOWHERE))
        self.now.messages[msg_id] = replace(one, **changes)

    def promise(self) -> None:
        self.safe = copy.deepcopy(self.now)

    # ---- events

    @initialize()
    def begin(self) -> None:
        """Let something be there: waiting, running, and ended in err."""
        self.submit(3, 0, True)
        self.claim(0, True)
        self.end(0, Event.FAIL, False, False)
        self.claim(0, True)
        self.commit()

    @rule(number=st.integers(1, 2), due=st.integers(0, 9), key=st.booleans())
    def submit(self, number: int, due: int, key: bool) -> None:
        for _ in range(number):
            if self.full:
                return
            msg_id = self.spool.new_id()
            assert msg_id not in self.now.messages
            message = a_message(msg_id, due=due, max_count=MAX_COUNT, param1=msg_id)
            more = {"key": f"k/{msg_id}"} if key else {}
            self.spool.submit(message, **more)
            self.know(msg_id, state=State.QUE, due=float(due))
            if key:
                self.now.keys[more["key"]] = msg_id

    @property
    def full(self) -> bool:
        left = [i for i in self.now.messages.values() if i.state is not State.GONE]
        return len(left) >= MESSAGES

    @rule()
    def prepare(self) -> None:
        if self.full:
            return
        msg_id = self.spool.new_id()
        assert msg_id not in self.now.messages
        self.spool.prepare(a_message(msg_id, max_count=MAX_COUNT, param1=msg_id))
        self.know(msg_id, state=State.PREP)
        self.safe.messages[msg_id] = Known(State.PREP)

    @rule(number=PICK, data=st.data())
    def happen(self, number: int, data: Any) -> None:
        """Let something happen to some message that may happen to it."""
        msg_id = self.pick(number, *(one for one in State if one is not State.GONE))
        if msg_id is None:
            return
        if self.spool.txns.of(msg_id) is not None:
            with pytest.raises(WrongState):
                self.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
            return
        ways = {
            State.PREP: ["commit_prepared", "discard"],
            State.QUE: ["claim", "claim", "reschedule", "hold", "discard"],
            State.RUN: ["end", "end", "give_back"],
            State.ERR: ["send_round_again", "dismiss", "discard"],
            State.DISMISSED: ["send_round_again", "discard", "expire"],
            State.DONE: ["discard", "expire"],
            State.RELAYED: ["discard", "expire"],
        }[self.now.messages[msg_id].state]
        if self.now.messages[msg_id].held:
            ways = ["release", "reschedule", "discard"]
        way = data.draw(st.sampled_from(ways), label="way")
        flags = data.draw(st.tuples(st.booleans(), st.booleans()), label="flags")
        match way:
            case "claim":
                self.claim(msg_id, flags[0])
            case "end":
                events = [Event.FINISH, Event.RELAY, Event.FAIL]
                event = data.draw(st.sampled_from(events), label="event")
                self.end(msg_id, event, *flags)
            case "give_back":
                self.give_back(msg_id, Event.RETRY if flags[0] else Event.REQUEUE)
            case "reschedule":
                self.reschedule(msg_id, data.draw(st.integers(0, 9), label="due"))
            case _:
                getattr(self, way)(msg_id)

    @rule(number=PICK, data=st.data())
    def more_happens(self, number: int, data: Any) -> None:
        """The same: most of what happens, happens to messages."""
        self.happen(number, data)

    @rule(number=PICK, data=st.data())
    def still_more_happens(self, number: int, data: Any) -> None:
        self.happen(number, data)

    @rule(
        act=st.sampled_from(["open", "prepare", "prepare", "commit", "abort"]),
        number=PICK,
        manifest=st.booleans(),
    )
    def transact(self, act: str, number: int, manifest: bool) -> None:
        """Let something happen to some transaction."""
        known = self.now.txns
        opened = [i for i, (how, _) in known.items() if how is Standing.OPEN]
        if act == "open" or not opened:
            if len(opened) < 2:
                known[decisions.open_one(self.spool, None, 60.0).txn_id] = (
                    Standing.OPEN,
                    [],
                )
            return
        txn_id = opened[number % len(opened)]
        if act == "prepare":
            self.prepare_in(txn_id)
            return
        members = known[txn_id][1]
        chosen = members[: number % (len(members) + 1)] if act == "commit" else []
        self.decide(txn_id, act, chosen, manifest)
        for msg_id in members:
            state = State.QUE if msg_id in chosen else State.GONE
            self.know(msg_id, state=state)
        how = Standing.COMMITTED if act == "commit" else Standing.ABORTED
        known[txn_id] = (how, [])

    def prepare_in(self, txn_id: str) -> None:
        if self.full:
            return
        msg_id = self.spool.new_id()
        message = a_message(msg_id, max_count=MAX_COUNT, param1=msg_id)
        self.spool.prepare_in(txn_id, message)
        self.know(msg_id, state=State.PREP)
        how, members = self.now.txns[txn_id]
        self.now.txns[txn_id] = (how, [*members, msg_id])

    def decide(self, txn_id: str, act: str, ids: list[str], manifest: bool) -> None:
        one = self.spool.txns.by_id[txn_id]
        if act == "abort":
            decisions.abort(self.spool, one)
            return
        with pytest.MonkeyPatch.context() as patch:
            if manifest and ids:
                patch.setattr(transactions, "INLINE", 0)
                transactions.write_manifest(self.owner.queue, txn_id, ids)
            decisions.commit(self.spool, one, ids)

    def commit_prepared(self, msg_id: str) -> None:
        self.spool.submit(self.spool.read(msg_id))
        self.know(msg_id, state=State.QUE)

    def claim(self, msg_id: str | int, started: bool) -> None:
        if isinstance(msg_id, int):
            msg_id = self.pick(msg_id, State.QUE)
        message = self.spool.claim(msg_id, 0)
        one = self.now.messages[msg_id]
        self.know(msg_id, state=State.RUN, attempt=one.attempt + 1)
        assert (message.count, message.attempt) == (one.count, one.attempt + 1)
        assert message.due == one.due
        self.running[msg_id] = message
        if started:
            if not self.spool.journal.write():
                self.spool.commit()
            self.promise()
            self.spool.settle(msg_id)
            self.spool.run_folders.work_dir(msg_id)

    def end(self, msg_id: str | int, event: Event, riders: bool, out: bool) -> None:
        if isinstance(msg_id, int):
            msg_id = self.pick(msg_id, State.RUN)
        more: dict[str, Any] = {}
        if riders and event is not Event.FAIL:
            known = self.now.messages.items()
            waiting = [i for i, o in known if o.state is State.QUE and not o.held]
            more = {"riders": waiting, "rides": "http://leader"}
        if out:
            more["out"] = [{"dest": "webhook", "message": {"dest": "webhook"}}]
        facts = {"cause": "done", "text": "said", "outcome": str(event)}
        spare = self.running.pop(msg_id)
        line = self.spool.fire(
            msg_id, event, Role.QUEUE, facts=facts, spare=spare, **more
        )
        self.know(msg_id, state=State(line["state"]))
        for rider in more.get("riders", ()):
            self.spool.ride(rider, event, line)
            self.know(rider, state=State(line["state"]))
        if out:
            self.now.owed.add((line["seq"], 0))

    def give_back(self, msg_id: str, event: Event) -> None:
        message = self.running.pop(msg_id)
        if event is Event.RETRY:
            message = message.with_(count=message.count + 1, due=message.due + 1)
        facts = {"cause": "resend", "text": "later", "outcome": "retry"}
        self.spool.fire(msg_id, event, Role.QUEUE, message=message, facts=facts)
        self.know(msg_id, state=State.QUE, count=message.count, due=message.due)

    def send_round_again(self, msg_id: str) -> None:
        attempt = self.now.messages[msg_id].attempt
        message = self.spool.read(msg_id).with_(count=0, due=NOW, attempt=attempt)
        self.spool.fire(msg_id, Event.REQUEUE, Role.CREATOR, message=message)
        self.know(msg_id, state=State.QUE, count=0, due=NOW)

    def reschedule(self, msg_id: str, due: int) -> None:
        seq = self.spool.entries[msg_id].seq
        self.spool.reschedule(msg_id, float(due))
        assert self.spool.entries[msg_id].seq == seq
        self.know(msg_id, due=float(due))

    def hold(self, msg_id: str) -> None:
        seq = self.spool.entries[msg_id].seq
        self.spool.hold(msg_id, {"by": "ann", "why": "", "since": self.clock.now})
        assert self.spool.entries[msg_id].seq == seq
        self.know(msg_id, held=True)

    def release(self, msg_id: str) -> None:
        self.spool.release(msg_id, "ann")
        self.know(msg_id, held=False)

    def dismiss(self, msg_id: str) -> None:
        self.spool.fire(msg_id, Event.DISMISS, Role.CREATOR)
        self.know(msg_id, state=State.DISMISSED)

    def discard(self, msg_id: str) -> None:
        self.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
        self.know(msg_id, state=State.GONE)

    def expire(self, msg_id: str) -> None:
        self.spool.fire(msg_id, Event.EXPIRE, Role.CLEANER)
        self.know(msg_id, state=State.GONE)

    @rule(number=PICK, step=st.sampled_from([0.0, 0.001, 1.0, -1.0, -100.0]))
    def deliver(self, number: int, step: float) -> None:
        self.clock.now += step
        if owed := sorted(self.now.owed):
            one = owed[number % len(owed)]
            self.spool.sent(*one)
            self.now.owed.discard(one)

    # ---- what the process does with them

    @rule(
        act=st.sampled_from(
            ["write", "write_part", "commit", "settle_some", "settle_all"]
        )
    )
    def work(self, act: str) -> None:
        getattr(self, act)()

    def write(self) -> None:
        if self.spool.journal.write():
            self.promise()

    def write_part(self) -> None:
        if self.spool.journal.write(last=False):
            self.promise()

    def commit(self) -> None:
        self.spool.commit()
        self.promise()

    def settle_some(self) -> None:
        self.commit()
        for msg_id in list(self.spool.unsettled)[:2]:
            self.spool.settle(msg_id)

    def settle_all(self) -> None:
        self.commit()
        self.spool.settle_all()
        self.agrees()

    @rule(act=st.sampled_from(["seal", "checkpoint", "checkpoint", "write_index"]))
    def keep(self, act: str) -> None:
        getattr(self, act)()

    def seal(self) -> None:
        self.spool.journal.seal()

    def checkpoint(self) -> None:
        """Begin a checkpoint, or end the one that was begun."""
        self.commit()
        if self.point is None:
            self.point = checkpoint.begin(self.spool, "boot")
            return
        for msg_id in list(self.spool.lagging.barrier):
            self.spool.settle(msg_id)
        point, self.point = self.point, None
        checkpoint.finish(self.spool.dir_fd, self.owner.queue, point)

    def write_index(self) -> None:
        """Begin an index, or end the one that was begun; of what is durable only."""
        self.commit()
        if self.writing is None:
            journal = self.spool.journal
            lines = index.lines(
                journal.journal_id,
                journal.position.seq,
                self.spool.entries,
                self.spool.keys,
                self.spool.txns,
            )
            self.writing = index.Writing(self.spool.dir_fd, lines)
            self.writing.write_slice(1)
            return
        while self.writing.write_slice():
            pass
        writing, self.writing = self.writing, None
        writing.finish()

    # ---- ends

    @rule(
        points=st.integers(0, 25),
        doing=st.sampled_from(
            [
                "nothing",
                "commit",
                "settle_all",
                "checkpoint",
                "seal",
                "index",
                "stop",
                "transact",
            ]
        ),
        again=st.none() | st.integers(0, 12),
    )
    def crash(self, points: int, doing: str, again: int | None) -> None:
        """Die at some point of an act, and perhaps once more while recovering."""
        with contextlib.suppress(Crash), dying_after(points):
            self.act(doing)
        self.forget()
        if again is not None:
            with contextlib.suppress(Crash), dying_after(again):
                self.owner.open()
            self.owner.crash()
        self.owner.open()
        self.meet()

    def act(self, doing: str) -> None:
        match doing:
            case "commit":
                self.commit()
            case "transact":
                self.transact("commit", 3, True)
                self.commit()
            case "settle_all":
                self.commit()
                self.spool.settle_all()
            case "checkpoint":
                self.checkpoint()
                self.checkpoint()
            case "seal":
                self.commit()
                self.seal()
            case "index":
                self.write_index()
                self.write_index()
            case "stop":
                self.give_all_back()
                self.commit()
                check.close_cleanly(self.spool)

    def give_all_back(self) -> None:
        for msg_id in list(self.running):
            self.give_back(msg_id, Event.REQUEUE)

    @rule()
    def stop_and_start(self) -> None:
        self.give_all_back()
        self.point = None
        if self.writing is not None:
            self.writing.abandon()
            self.writing = None
        self.owner.stop()
        self.promise()
        assert check.check(self.owner.queue) == []
        self.owner.open()
        assert self.owner.opened.clean
        self.meet()

    def forget(self) -> None:
        self.owner.crash()
        self.running.clear()
        self.point = None
        if self.writing is not None:
            self.writing._file.close()
            self.writing = None

    def meet(self) -> None:
        """Find the world that the spool has become, and go on from there."""
        for msg_id in self.now.messages.keys() - self.safe.messages.keys():
            self.safe.messages[msg_id] = Known(State.GONE)  # it never was
        worlds = [world.recovered(self.clock.now) for world in (self.safe, self.now)]
        told = [self.differences(world) for world in worlds]
        assert [] in told, f"neither what was promised nor what was said: {told}"
        self.now = worlds[told.index([])]
        self.promise()
        assert self.owner.opened.reports == []

    def differences(self, world: World) -> list[str]:
        spool, told = self.spool, []
        for msg_id, one in world.messages.items():
            state = spool.find(msg_id)
            if state is not (None if one.state is State.GONE else one.state):
                told.append(f"{msg_id} is {state}, not {one.state}")
            elif state is State.QUE:
                entry, message = spool.entries[msg_id], spool.read(msg_id)
                wanted = (one.count, one.attempt, one.due)
                for there in (entry, message):
                    found = (there.count, there.attempt, there.due)
                    if found != wanted or bool(there.held) is not one.held:
                        told.append(f"{msg_id} has {found}, not {wanted}: {there}")
        return told + self.others(world)

    def others(self, world: World) -> list[str]:
        """Tell what is different beside the messages themselves."""
        spool, told = self.spool, []
        if set(spool.owed) != world.owed:
            told.append(f"owed {set(spool.owed)}, not {world.owed}")
        if {k: v[0] for k, v in spool.keys.items()} != world.keys:
            told.append(f"keys {spool.keys}, not {world.keys}")
        txns = {i: (o.standing, [*o.members]) for i, o in spool.txns.by_id.items()}
        if txns != world.txns:
            told.append(f"transactions {txns}, not {world.txns}")
        return told

    # ---- what always holds

    @invariant()
    def every_message_is_where_the_events_have_brought_it(self) -> None:
        for msg_id, one in self.now.messages.items():
            wanted = None if one.state is State.GONE else one.state
            assert self.spool.find(msg_id) is wanted

    @invariant()
    def counts_agree_with_the_model(self) -> None:
        states = [one.state for one in self.now.messages.values()]
        for state in COUNTED:
            assert self.spool.counts.of(state) == states.count(state)

    @invariant()
    def what_lives_can_be_read(self) -> None:
        for msg_id, one in self.now.messages.items():
            if one.state is not State.GONE:
                assert self.spool.read(msg_id).params == {"param1": msg_id}

    def agrees(self) -> None:
        """Ensures that each message lies in exactly one place, and counters know it."""
        queue = self.owner.queue
        assert self.spool.counts.to_json() == folders.count(queue).to_json()
        assert check_live(self.spool) == []
        for msg_id, one in self.now.messages.items():
            there = [
                state
                for state in COUNTED
                if (queue.path / folder(state, msg_id)).exists()
            ]
            assert there == ([] if one.state is State.GONE else [one.state])

    def teardown(self) -> None:
        try:
            if self.owner.is_open:  # not when it could not be opened
                self.settle_all()
                self.stop_and_start()
                self.settle_all()
        finally:
            self.forget()
            shutil.rmtree(self.path)


CALM = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SpoolMachine.TestCase.settings = settings(CALM, max_examples=40, stateful_step_count=30)
TestSpool = SpoolMachine.TestCase


class LongMachine(SpoolMachine):
    """The same, for longer."""


LongMachine.TestCase.settings = settings(
    CALM, max_examples=1500, stateful_step_count=60
)
TestSpoolForLonger = pytest.mark.stress(LongMachine.TestCase)
