"""Any course of commands about messages and events, with snapshots, crashes, power cuts and clocks
that jump between any two, against a plain model."""

from __future__ import annotations

from typing import NamedTuple

from harness.broker_world import CALM, ENDS, SLOT, BrokerMachine, World
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from rq.resp import OK

NAMES = st.sampled_from([b"x", b"y"])
BODIES = st.sampled_from([b"", b"one", b"\xff\x00"])
PICK = st.integers(0, 7)


class RedisRQ(BrokerMachine):
    """Queues of messages that wait for their acknowledgement."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.last: dict[bytes, tuple[int, int]] = {}
        self.promised: tuple[list[str], dict[bytes, tuple[int, int]]] = ([], {})

    @staticmethod
    def view(node, now):
        world: World = {}
        for key, queue in node.reliable.by_key.items():
            if queue.undelivered:
                world["waits", key] = tuple(queue.undelivered.items())
            if queue.delivered:
                world["out", key] = tuple(
                    (msg_id, each.body, each.at, each.times)
                    for msg_id, each in queue.delivered.items()
                )
        return world

    def keep(self, key: bytes, waits: tuple, out: tuple) -> None:
        for name, value in (("waits", waits), ("out", out)):
            self.world.pop((name, key), None)
            if value:
                self.world[name, key] = value

    def of(self, key: bytes) -> tuple[tuple, tuple]:
        return self.world.get(("waits", key), ()), self.world.get(("out", key), ())

    def settle(self, now, seen):
        """Time changes nothing here."""

    def answered(self):
        self.promised = list(self.ids), dict(self.last)

    def restarted(self):
        self.ids, self.last = list(self.promised[0]), dict(self.promised[1])

    @rule(key=NAMES, bodies=st.lists(BODIES, min_size=1, max_size=3), ends=ENDS)
    def push(self, key, bodies, ends):
        ids = self.ask("RQ.PUSH", key, *bodies)
        assert len(ids) == len(bodies)
        for msg_id in ids:
            number = tuple(map(int, msg_id.split("-")))
            assert number > self.last.get(key, (0, 0)), "an old ACK would hit it"
            self.last[key] = number
        self.ids += ids
        waits, out = self.of(key)
        self.keep(key, (*waits, *zip(ids, bodies, strict=True)), out)
        self.said(ends)

    @rule(key=NAMES, count=st.integers(1, 3), ends=ENDS)
    def pop(self, key, count, ends):
        waits, out = self.of(key)
        value = self.ask("RQ.POP", "COUNT", count, key)
        assert value == [[key, msg_id, body] for msg_id, body in waits[:count]]
        more = tuple((msg_id, body, self.now, 1) for msg_id, body in waits[:count])
        self.keep(key, waits[count:], out + more)
        self.said(ends, durably=False)

    @precondition(lambda self: self.ids)
    @rule(key=NAMES, picks=st.lists(PICK, min_size=1, max_size=3), ends=ENDS)
    def ack(self, key, picks, ends):
        ids = [self.ids[-1 - pick % len(self.ids)] for pick in picks]
        waits, out = self.of(key)
        there = {each[0] for each in out}
        value = self.ask("RQ.ACK", key, *ids)
        if value is None:
            assert (waits, out) == ((), ())
        else:
            assert value == [each for each in dict.fromkeys(ids) if each in there]
        self.keep(key, waits, tuple(each for each in out if each[0] not in ids))
        self.said(ends)

    @rule(
        key=NAMES, count=st.integers(0, 3), elapsed=st.sampled_from([0, 950]), ends=ENDS
    )
    def recover(self, key, count, elapsed, ends):
        waits, out = self.of(key)
        value = self.ask("RQ.RECOVER", key, count, elapsed) or []
        some = [each for each in out[:count] if each[2] <= self.now - elapsed / 1000]
        assert value == [[msg_id, body] for msg_id, body, *_ in some]
        again = tuple((i, body, self.now, times + 1) for i, body, _, times in some)
        self.keep(key, waits, (*(each for each in out if each not in some), *again))
        self.said(ends, durably=False)


class Group(NamedTuple):
    """A group of consumers, as the model has it."""

    pointer: int
    in_progress: tuple[tuple[int, float], ...]
    redo: tuple[int, ...]


class Bananaq(BrokerMachine):
    """Events and groups of consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.last = 0
        self.promised: tuple[list[str], int] = [], 0

    @staticmethod
    def view(node, now):
        world: World = {}
        for name, queue in node.groups.by_name.items():
            for number, event in queue.events.items():
                end = round(queue.ends[number].at, 3)
                world["event", name, number] = end, event.contents
            for group_name, group in queue.groups.items():
                if queue.may_go(group):
                    continue  # at the next tick, if it is there
                held = sorted((n, wake.at) for n, wake in group.in_progress.items())
                world["group", name, group_name] = Group(
                    group.pointer, tuple(held), tuple(group.redo)
                )
        return world

    def answered(self):
        self.promised = list(self.ids), self.last

    def restarted(self):
        self.ids, self.last = list(self.promised[0]), self.promised[1]

    def hold(self, world, at):
        for key, value in world.items():
            if key[0] == "event":
                world[key] = max(value[0], round(at, 3)), value[1]

    def at_start(self, worlds, now):
        """That something is over has no line: it follows from the time. While nothing
        expires what was over may be there again."""
        self.node.groups.settle(now, 10_000)
        seen = self.view(self.node, now)
        for world in worlds:
            over_in(world, now, seen)
            more = [key for key in seen if key[0] == "event" and key not in world]
            if more and self.kept.store.clock.grace:
                world.update(seen)
        return seen

    def settle(self, now, seen):
        over_in(self.world, now, seen)

    def said(self, ends, durably=True):
        as_good_as_none(self.world)
        super().said(ends, durably)

    def events(self, queue: bytes) -> list[int]:
        return sorted(each[2] for each in self.world if each[:2] == ("event", queue))

    @rule(
        queue=NAMES,
        life=st.sampled_from(["0.53", "3.97", "60"]),
        body=BODIES,
        ends=ENDS,
    )
    def add(self, queue, life, body, ends):
        event_id = self.ask("QADD", queue, life, body)
        number = int(event_id.partition("_")[0])
        assert number > self.last, "an old QACK would hit it"
        self.last = number
        self.ids.append(event_id)
        self.world["event", queue, number] = round(self.now + float(life), 3), body
        self.said(ends)

    @rule(queue=NAMES, group=NAMES, ex=st.sampled_from(["0", "0.93", "9"]), ends=ENDS)
    def get(self, queue, group, ex, ends):
        value = self.ask("QGET", queue, group, "EX", ex)
        it = self.world.get(("group", queue, group), Group(0, (), ()))
        new = [number for number in self.events(queue) if number > it.pointer]
        if not (it.redo or new):
            assert value is None
            return
        number = (it.redo or new)[0]
        assert value[1] == self.world["event", queue, number][1]
        assert int(value[0].partition("_")[0]) == number
        held = [each for each in it.in_progress if each[0] != number]
        if ex != "0":
            held.append((number, self.now + float(ex)))
        redo = tuple(each for each in it.redo if each != number)
        pointer = max(it.pointer, number)
        self.world["group", queue, group] = Group(pointer, tuple(sorted(held)), redo)
        self.said(ends, durably=ex == "0")

    @precondition(lambda self: self.ids)
    @rule(queue=NAMES, group=NAMES, pick=PICK, ends=ENDS)
    def ack(self, queue, group, pick, ends):
        event_id = self.ids[-1 - pick % len(self.ids)]
        number = int(event_id.partition("_")[0])
        it = self.world.get(("group", queue, group), Group(0, (), ()))
        value = self.ask("QACK", queue, group, event_id)
        until = dict(it.in_progress).get(number, 0.0)
        assert value == (until >= self.now)
        if value:
            held = tuple(each for each in it.in_progress if each[0] != number)
            self.world["group", queue, group] = it._replace(in_progress=held)
        self.said(ends)

    @rule(queue=NAMES, really=st.integers(0, 2))
    def flush(self, queue, really):
        if really:
            return
        assert self.ask("QFLUSH", queue) == OK
        for key, value in list(self.world.items()):
            if key[:2] == ("event", queue):
                del self.world[key]
            elif key[:2] == ("group", queue):
                self.world[key] = value._replace(redo=())
        self.said(True)


def over_in(world: World, now: float, seen: World) -> None:
    """Let be over in a world what is; all as it was seen, when it is too near to now."""
    ends = [value[0] for key, value in world.items() if key[0] == "event"]
    groups = {key: value for key, value in world.items() if key[0] == "group"}
    held = [until for each in groups.values() for _, until in each.in_progress]
    if any(abs(at - now) < SLOT for at in (*ends, *held)):
        world.clear()
        world.update(seen)
        return
    for key, value in list(world.items()):
        if key[0] == "event" and value[0] < now:
            del world[key]
    for key, it in groups.items():
        late = [number for number, until in it.in_progress if until < now]
        redo = {each for each in (*it.redo, *late) if ("event", key[1], each) in world}
        held = tuple(each for each in it.in_progress if each[0] not in late)
        world[key] = Group(it.pointer, held, tuple(sorted(redo)))
    as_good_as_none(world)


def as_good_as_none(world: World) -> None:
    """Let the groups go that have nothing, and no live event up to their pointer."""
    for key, value in list(world.items()):
        if key[0] != "group" or value.in_progress or value.redo:
            continue
        if not any(
            each[:2] == ("event", key[1]) and each[2] <= value.pointer for each in world
        ):
            del world[key]


RedisRQ.TestCase.settings = CALM
TestRedisRQ = RedisRQ.TestCase
Bananaq.TestCase.settings = CALM
TestBananaq = Bananaq.TestCase
