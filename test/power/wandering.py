"""A story of chance: whatever may happen to messages happens, and the owner is killed
anywhere on the way; a seed tells one from the other."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

from power.tale import NOWHERE, Tale

from rq.files.durable import crash_points
from rq.spool import checkpoint, index
from rq.words.states import Event, State

MESSAGES = 7  # alive at once
STEPS = 45

Act = Callable[[], object]


class Killed(BaseException):
    """The process ends here."""


@contextlib.contextmanager
def killed_after(points: int) -> Iterator[None]:
    """Let the process die at the n-th point where it could."""
    left = [points]

    def passing(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    before, crash_points.hook = crash_points.hook, passing
    try:
        yield
    finally:
        crash_points.hook = before


class Wanderer:
    """Does what chance wants with a tale."""

    def __init__(self, tale: Tale, seed: int) -> None:
        self.tale = tale
        self.chance = random.Random(seed)
        self.point: checkpoint.Checkpoint | None = None
        self.writing: index.Writing | None = None
        self.deposits = 0

    def wander(self) -> None:
        for _ in range(STEPS):
            act = self.chance.choice(self.acts())
            if self.chance.random() < 0.15:
                self.die_in(act)
            else:
                act()

    def acts(self) -> list[Act]:
        """Return what may be done now, what is likely more than once."""
        living = [i for i, may in self.tale.may.items() if may[-1].state != NOWHERE]
        every: list[Act] = [self.commit, self.commit, self.write, self.settle_some]
        every += [self.keep, self.keep, self.mind_index, self.tale.seal, self.stop]
        if len(living) < MESSAGES:
            every += [self.submit, self.submit, self.prepare, self.deposit]
        for msg_id in living:
            every += [lambda one=msg_id: self.happen(one)] * 3
        return every

    # ---- messages

    def submit(self) -> None:
        key = f"k/{len(self.tale.may)}" if self.chance.random() < 0.5 else ""
        self.tale.submit(**({"key": key} if key else {}))

    def prepare(self) -> None:
        self.tale.prepare(*[b"attached"] * self.chance.randrange(3))

    def deposit(self) -> None:
        self.deposits += 1
        name = f"20270115.0800.00.000.{self.deposits}"
        self.tale.deposit(name, b"deposited" * self.chance.randrange(2))
        self.tale.adopt()

    def happen(self, msg_id: str) -> None:
        """Let something happen to a message that may happen to it."""
        tale, now = self.tale, self.tale.now(msg_id)
        state = "held" if now.held else now.state
        ways: dict[str, list[Act]] = {
            "prep": [lambda: tale.commit_prepared(msg_id), lambda: tale.delete(msg_id)],
            "que": [lambda: tale.start(msg_id), lambda: tale.claim(msg_id),
                    lambda: tale.hold(msg_id),
                    lambda: tale.delete(msg_id),
                    lambda: tale.reschedule(msg_id, 1.9e9)],
            "held": [lambda: tale.release(msg_id), lambda: tale.delete(msg_id),
                     lambda: tale.reschedule(msg_id, 1.8e9)],
            "run": [lambda: self.end(msg_id), lambda: self.end(msg_id),
                    lambda: tale.resend(msg_id), lambda: tale.requeue(msg_id)],
            "err": [lambda: tale.retry(msg_id), lambda: tale.dismiss(msg_id),
                    lambda: tale.delete(msg_id)],
            "dismissed": [lambda: tale.retry(msg_id), lambda: tale.delete(msg_id)],
            "done": [lambda: self.expire(msg_id), lambda: tale.delete(msg_id)],
            "relayed": [lambda: self.expire(msg_id)],
        }  # fmt: skip
        self.chance.choice(ways[state])()

    def end(self, msg_id: str) -> None:
        event = self.chance.choice(
            [Event.FINISH, Event.FINISH, Event.RELAY, Event.FAIL]
        )
        self.tale.end(msg_id, event)

    def expire(self, msg_id: str) -> None:
        """Remove a message, if its folder lies where it belongs."""
        self.tale.apply()
        self.tale.expire(State(self.tale.now(msg_id).state), msg_id)

    # ---- what the process does

    def commit(self) -> None:
        self.tale.commit()

    def write(self) -> None:
        self.tale.spool.journal.write(last=self.chance.random() < 0.5)

    def settle_some(self) -> None:
        self.commit()
        for msg_id in list(self.tale.spool.unsettled)[:2]:
            self.tale.spool.settle(msg_id)

    def keep(self) -> None:
        """Begin a checkpoint, or end the one that was begun."""
        self.commit()
        if self.point is None:
            self.point = self.tale.begin_checkpoint()
            return
        point, self.point = self.point, None
        self.tale.end_checkpoint(point)

    def mind_index(self) -> None:
        """Begin an index, or end the one that was begun."""
        self.commit()
        if self.writing is None:
            self.writing = self.tale.begin_index()
            self.writing.write_slice(1)
            return
        writing, self.writing = self.writing, None
        while writing.write_slice():
            pass
        writing.finish()

    # ---- ends

    def die_in(self, act: Act) -> None:
        with contextlib.suppress(Killed), killed_after(self.chance.randrange(12)):
            act()
        self.forget()
        self.tale.crash()
        with contextlib.suppress(Killed), killed_after(self.chance.randrange(25)):
            self.tale.owner.open()
        self.tale.owner.crash()
        self.tale.again()

    def stop(self) -> None:
        self.forget()
        self.tale.stop()
        self.tale.again()

    def forget(self) -> None:
        self.point = None
        if self.writing is not None:
            self.writing.abandon()
            self.writing = None
