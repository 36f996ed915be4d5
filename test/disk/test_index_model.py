"""Whatever is killed, restored, removed or made again: the index says what has happened.

Queues are at work here, and a process that is killed -9 keeps their index: at named points,
and at random. A model keeps what was sent and ended. At the end the index has to say what
the model says, each row once, and the very same as one that is made again from the journals.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import time

import pytest
from harness.filled import WAYS
from harness.index import bare_root
from harness.spool import Owner

from rq.index import __main__ as program
from rq.index import retention, schema, word
from rq.index.batch import Batch
from rq.index.keeper import Keeper
from rq.index.store import Store
from rq.words.states import Event, Role, State

SETTINGS = {"days": 31, "limit": 2**31, "least": 0}
POINTS = {
    "before a batch is written": (Store, "write", "before"),
    "between a batch and its places": (Batch, "write", "after"),
    "behind the transaction of a batch": (Batch, "write", "commit"),
    "while rows of a queue go": (retention.Retention, "clear", "after"),
}


@pytest.fixture
def root(tmp_path):
    return bare_root(tmp_path)


# ---- the process that is killed


class Child:
    """Keeps the index in a process of its own, until it is killed."""

    def __init__(self, root, point=None):
        begun, begins = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(begins)
            os.read(begun, 1)  # until it has let go of what it has of this process
            os.close(begun)
            return
        try:
            os.closerange(3, 1024)  # the locks of queues, above all
            if point is not None:
                die_at(*POINTS[point])
            keep(root)
        finally:
            os._exit(1)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def ended(self):
        """Whether it has died at its point."""
        return os.waitpid(self.pid, os.WNOHANG)[0] != 0


def keep(root):
    sock = word.listen(root)
    keeper = Keeper(root, **SETTINGS)
    while True:
        program._hear(sock, keeper)
        keeper._look_at = 0.0
        keeper.step()
        time.sleep(0.002)  # as a process that rests between two steps


def die_at(owner, name, when):
    """Let this process be killed at the third call of a method, or at the end of the
    transaction in which that was called."""
    method, transaction, calls = getattr(owner, name), Store.transaction, []

    def die(at):
        if at == when and len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(*args, **more):
        calls.append(name)
        die("before")
        answer = method(*args, **more)
        die("after")
        return answer

    @contextlib.contextmanager
    def ending(store):
        with transaction(store) as base:
            yield base
        die("commit")

    setattr(owner, name, dying)
    Store.transaction = ending


# ---- queues at work, and what the model knows of them


class World:
    """Queues, and what was done in them."""

    def __init__(self, root, seed):
        self.root, self.rule = root, random.Random(seed)
        self.states, self.owners, self.backups = {}, {}, {}
        self.attempts, self.jumped = {}, 0.0
        for name in ("mail", "bank", "shop"):
            self.begin(name)

    def begin(self, name):
        owner = Owner(self.root.path, clock=self.clock, name=name)
        settings = {"name": name, "script": "x"}
        owner.queue.config.write_text(json.dumps(settings))
        owner.open()
        self.owners[name] = owner
        self.states[name], self.attempts[name] = {}, {}

    def clock(self):
        return time.time() + self.jumped

    def jump(self, name, owner):
        """The wall clock is set, by a day at most."""
        self.jumped = self.rule.uniform(-86400, 86400)

    def step(self):
        """Do something in some queue."""
        name = self.rule.choice(list(self.owners))
        do = self.rule.choices(*zip(*DEEDS, strict=True))[0]
        do(self, name, self.owners[name])

    def some(self, name, *states):
        ids = [i for i, state in self.states[name].items() if state in states]
        return self.rule.choice(ids) if ids else None

    def send(self, name, owner):
        for _ in range(self.rule.randrange(1, 6)):
            number = self.rule.randrange(1000)
            msg_id = owner.submit(param1=f"order-{number}", param2="x" * number)
            self.states[name][msg_id] = State.QUE
            self.attempts[name][msg_id] = 0
        self.commit(name, owner)

    def commit(self, name, owner):
        """Make all durable; mostly the owner says so, too."""
        owner.apply()
        if self.rule.random() < 0.7:
            data = word._encoded(name, owner.spool.durable)
            with word._opened() as sock:
                word.send(self.root.index_socket, data, sock)

    def run(self, name, owner):
        msg_id = self.some(name, State.QUE)
        if msg_id is None:
            return
        owner.spool.fire(msg_id, Event.CLAIM, Role.QUEUE)
        if self.rule.random() < 0.3:
            self.commit(name, owner)
        event, state = self.rule.choice(
            [
                (Event.FINISH, State.DONE),
                (Event.FAIL, State.ERR),
                (Event.RETRY, State.QUE),
                (Event.REQUEUE, State.QUE),
            ]
        )
        cause, text = self.rule.choice(WAYS)
        facts = {
            "cause": cause,
            "text": text,
            "outcome": "x",
            "run_us": 5,
            "wait_us": 1,
        }
        owner.spool.fire(msg_id, event, Role.QUEUE, facts=facts)
        self.states[name][msg_id] = state
        self.attempts[name][msg_id] += 1
        self.commit(name, owner)

    def mark(self, name, owner):
        """Acknowledge an error, or take that back."""
        msg_id = self.some(name, State.ERR, State.DISMISSED)
        if msg_id is not None:
            is_err = self.states[name][msg_id] is State.ERR
            event = Event.DISMISS if is_err else Event.REOPEN
            owner.spool.fire(msg_id, event, Role.CREATOR)
            self.states[name][msg_id] = State.DISMISSED if is_err else State.ERR
            self.commit(name, owner)

    def delete(self, name, owner):
        msg_id = self.some(name, State.QUE, State.ERR, State.DONE)
        if msg_id is not None:
            owner.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
            self.states[name][msg_id] = State.GONE
            self.commit(name, owner)

    def seal(self, name, owner):
        owner.spool.journal.seal()

    def crash(self, name, owner):
        owner.again()

    def stop(self, name, owner):
        owner.stop()
        owner.open()

    def back_up(self, name, owner):
        owner.stop()
        place = self.root.path / f"backup-{name}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(owner.queue.path, place)
        owner.open()
        self.backups[name] = dict(self.states[name]), dict(self.attempts[name])

    def restore(self, name, owner):
        """Lay a backup in the place of a queue, and begin as a person allows."""
        if name not in self.backups:
            return
        owner.stop()
        shutil.rmtree(owner.queue.path)
        shutil.copytree(self.root.path / f"backup-{name}", owner.queue.path)
        (owner.queue.journal / "mark").unlink()
        owner.open()
        states, attempts = self.backups[name]
        self.states[name], self.attempts[name] = dict(states), dict(attempts)

    def remove(self, name, owner):
        """Delete a queue; another one gets its name."""
        owner.stop()
        shutil.rmtree(owner.queue.path)
        self.backups.pop(name, None)
        self.begin(name)

    def end(self):
        for owner in self.owners.values():
            owner.stop()


DEEDS = [
    (World.send, 20),
    (World.run, 40),
    (World.mark, 6),
    (World.delete, 4),
    (World.seal, 6),
    (World.crash, 2),
    (World.stop, 2),
    (World.jump, 2),
    (World.back_up, 2),
    (World.restore, 2),
    (World.remove, 1),
]


# ---- what an index says


def contents(root):
    """Return all that an index holds, without the numbers of its rows."""
    base = sqlite3.connect(schema.place(root))
    names = dict(base.execute("SELECT id, name FROM queues"))
    rows = base.execute(
        "SELECT queue, msg, state, cause, text, grp, params, attempt, changed, id "
        "FROM messages"
    ).fetchall()
    of = {row[-1]: (names[row[0]], row[1]) for row in rows}
    runs = base.execute(
        "SELECT message, attempt, started, ended, outcome, text FROM runs"
    )
    hours = base.execute("SELECT queue, hour, counts FROM hours")
    answer = {
        "messages": sorted((names[row[0]], *map(str, row[1:-1])) for row in rows),
        "runs": sorted((*of[row[0]], *map(str, row[1:])) for row in runs),
        "hours": {(names[q], hour): json.loads(counts) for q, hour, counts in hours},
        "words": terms(base, "words", of),
        "said": terms(base, "said", of),
    }
    base.close()
    return answer


def terms(base, table, of):
    base.execute(
        f"CREATE VIRTUAL TABLE temp.v_{table} USING fts5vocab(main, {table}, instance)"
    )
    rows = base.execute(f"SELECT term, doc, offset FROM v_{table}")
    return sorted((term, *of[doc], offset) for term, doc, offset in rows)


def read_all(root):
    keeper = Keeper(root, **SETTINGS)
    while keeper.step() == 0.0:
        pass
    keeper.close()


def check(world):
    """Compare the index with the model, and with one that is made again."""
    root = world.root
    read_all(root)
    index = contents(root)
    told = {(row[0], row[1]): row[2] for row in index["messages"]}
    assert len(told) == len(index["messages"])
    assert told == {
        (name, msg_id): state
        for name, states in world.states.items()
        for msg_id, state in states.items()
    }
    ended = dict.fromkeys(told, 0)
    for row in index["runs"]:
        ended[row[0], row[1]] += 1
    assert ended == {
        (name, msg_id): number
        for name, attempts in world.attempts.items()
        for msg_id, number in attempts.items()
    }
    schema.remove(root)
    read_all(root)
    again = contents(root)
    for part, rows in index.items():
        assert rows == again[part], part


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_named_point_leaves_no_gap_and_no_double(root, point):
    world = World(root, point)
    child, died = Child(root, point), False
    for number in range(150):
        world.step()
        if not died and child.ended():
            child, died = Child(root), True
        if number == 100:
            world.remove("mail", world.owners["mail"])
    assert died
    child.kill()
    world.end()
    check(world)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_after_random_kills_it_says_what_has_happened(root, seed):
    world = World(root, seed)
    child = Child(root)
    for _ in range(400):
        world.step()
        if world.rule.random() < 0.04:
            child.kill()
            if world.rule.random() < 0.1:
                schema.remove(root)
            child = Child(root)
    child.kill()
    world.end()
    check(world)


@pytest.mark.parametrize("point", [point for point in POINTS if "batch" in point])
def test_a_batch_that_is_cut_counts_once(root, point):
    """Without chance: what was written in part is as if it never was."""
    world = World(root, 0)
    for _ in range(30):
        world.step()
    child = Child(root, point)
    while not child.ended():
        for do in (World.send, World.run, World.seal):
            do(world, "mail", world.owners["mail"])
    world.end()
    check(world)
