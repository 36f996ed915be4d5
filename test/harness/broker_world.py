"""A broker's node on disk and what a plain model promises of it, with clocks that a test
moves, snapshots in slices, and ends of every kind.

The model is a dict of what there is: `world`. After each step the node has to hold just
that. What was said since the last sync is kept as one world after the other, so that an
end can be compared with what was durable then.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from harness.broker_store import KeptNode
from rq.broker.desks.node import Node
from rq.broker.dialects import TABLE
from rq.broker.dialects.call import Call, Refusal
from rq.broker.state import groups, jobs, reliable
from rq.broker.store import snapshot
from rq.broker.store.clock import Machine

World = dict[tuple[object, ...], object]
WALL = 1_700_000_000.0
MEMORY = (
    "/dev/shm" if os.path.isdir("/dev/shm") else None
)  # what a sync costs is no part
SLOT = 0.02  # seconds: a deadline so near may be met, or not yet
SECONDS = st.sampled_from([0.1, 0.6, 1.1, 2.3, 5.0, 31.0])
ENDS = st.sampled_from([True, True, True, False])  # whether a turn ends with a command


class Clocks:
    """The clocks of a machine, which a test moves."""

    def __init__(self) -> None:
        self.wall, self.up, self.boots = WALL, 1000.0, 1

    def machine(self) -> Machine:
        return Machine(f"boot {self.boots}", lambda: self.wall, lambda: self.up)

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.up += seconds

    def boot(self, jump: float) -> None:
        """Start the machine again, whose time of day has gone on by `jump` seconds."""
        self.wall, self.up, self.boots = self.wall + jump, 3.0, self.boots + 1


class BrokerMachine(RuleBasedStateMachine):
    """What the machines of all dialects have in common."""

    view: Callable[[Node, float], World]  # what a node knows at a moment, as a world

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="rq-broker-machine-", dir=MEMORY))
        self.clocks = Clocks()
        self.kept = KeptNode(self.path / "node", self.clocks.machine(), Random(7))
        self.world: World = {}
        self.worlds: list[World] = [{}]  # since the last sync, the durable one first
        self.written = 0  # which of them a kill -9 leaves
        self.line_at = self.latest = 0.0  # moment of the last line; of what is durable
        self.owes = False  # an answer of this turn waits for a sync
        self.is_fuzzy = False  # a snapshot may tell of what is not durable
        self.slices = jobs._SLICE, reliable._SLICE, groups._SLICE, snapshot._SLICE
        jobs._SLICE = reliable._SLICE = groups._SLICE = 2
        snapshot._SLICE = 0.0

    @initialize()
    def begin(self) -> None:
        self.node = self.kept.open()
        self.commit()  # a snapshot needs a line to begin after

    @property
    def now(self) -> float:
        return self.kept.now

    # ---- commands

    def ask(self, *words: object) -> object:
        """Obey a command a moment later; return its answer, or the error as text."""
        self.clocks.pass_by(0.001)
        name, *args = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        wall = int(self.clocks.wall * 1000)
        try:
            return TABLE[name].function(Call(self.node, 1, args, self.now, wall))
        except Refusal as refusal:
            return refusal.failure.text

    def said(self, ends: bool, durably: bool = True) -> None:
        """A command was obeyed, and the model knows; `ends`: so does the client, which
        must not be told before it is durable, if it changed something `durably`."""
        self.owes = self.owes or (durably and self.world != self.worlds[-1])
        assert self.view(self.node, self.now) == self.world
        self.worlds.append(dict(self.world))
        if ends:
            self.turn()

    def turn(self) -> None:
        """End a turn as the server does: what answers say is durable before they go."""
        assert self.node.must_sync or not self.owes, "no power cut may undo it"
        self.owes = False
        if self.node.events:
            self.line_at = self.now
        if self.node.must_sync:
            self.commit()
        else:
            self.kept.write()
            self.written = len(self.worlds) - 1
        self.answered()

    def answered(self) -> None:
        """Clients have their answers."""

    def commit(self) -> None:
        self.kept.commit()
        self.worlds, self.written = [dict(self.world)], 0
        self.latest, self.is_fuzzy = max(self.latest, self.line_at), False

    # ---- time

    @rule(seconds=SECONDS, ends=ENDS)
    def time_passes(self, seconds: float, ends: bool) -> None:
        self.clocks.pass_by(seconds)
        self.tick()
        self.said(ends, durably=False)

    def tick(self) -> None:
        now = self.now
        self.node.tick(now)
        self.settle(now, self.view(self.node, now))

    def settle(self, now: float, seen: World) -> None:
        """Let the model know that it is `now`. Where the moment is too near to a deadline
        to be sure, what was `seen` counts."""
        raise NotImplementedError

    @rule(seconds=st.sampled_from([-90_000.0, -3600.0, -5.0, 7.0, 3600.0, 200_000.0]))
    def the_time_of_day_is_set(self, seconds: float) -> None:
        before = self.now
        self.clocks.wall += seconds
        assert self.now == before

    # ---- snapshots

    @rule(slices=st.integers(1, 12))
    def a_snapshot_goes_on(self, slices: int) -> None:
        compaction = self.kept.store._compaction
        compaction._bytes = -(10**12)  # so that one is worth it
        compaction._again_at = 0.0
        for _ in range(slices):
            self.kept.store.mind_snapshot(self.node)
        self.is_fuzzy = self.is_fuzzy or compaction._finishing is not None

    @rule()
    def a_snapshot_is_finished(self) -> None:
        compaction = self.kept.store._compaction
        self.a_snapshot_goes_on(1)
        while compaction._writing is not None:
            self.is_fuzzy = True
            self.kept.store.mind_snapshot(self.node)
            self.kept._settle()

    # ---- ends

    @rule()
    def stop(self) -> None:
        self.turn()
        self.kept.stop()
        self.worlds, self.written, self.is_fuzzy = [dict(self.world)], 0, False
        self.start()

    @rule()
    def kill(self) -> None:
        self.end(self.written)

    @rule(jump=st.sampled_from([-90_000.0, -5.0, 0.0, 4.0, 600.0, 200_000.0]))
    def the_machine_starts_again(self, jump: float) -> None:
        """Power is lost, and nothing that was not synced is there."""
        self.kept.tear(0)
        self.clocks.boot(jump)
        self.end(0)

    @rule(keep=st.integers(1, 400), junk=st.booleans())
    def power_is_lost(self, keep: int, junk: bool) -> None:
        """Some bytes of what was not synced are there, and something else after them."""
        self.is_fuzzy = self.is_fuzzy or len(self.worlds) > 1
        self.kept.tear(keep, junk=junk)
        self.clocks.boot(1.0)
        self.end(0)

    def end(self, first: int) -> None:
        """End without a word; `first`: the oldest world that may be found."""
        least = self.latest
        self.kept.crash()
        self.worlds = self.worlds[first:] if self.is_fuzzy else [self.worlds[first]]
        self.start()
        assert self.now > least - 1e-5, "the broker's clock goes back"

    def start(self) -> None:
        """Start, and see what is there."""
        self.kept.machine = self.clocks.machine()
        self.node = self.kept.open()
        now, clock = self.now, self.kept.store.clock
        worlds = [dict(each) for each in self.worlds]
        if clock.grace:
            for each in worlds:
                self.hold(each, clock.expiry_from)
        seen = self.at_start(worlds, now)
        self.world = one_of(worlds, seen)
        self.restarted()
        self.worlds, self.written, self.is_fuzzy = [dict(self.world)], 0, False
        self.line_at, self.owes = 0.0, False
        self.tick()
        self.commit()

    def at_start(self, worlds: list[World], now: float) -> World:
        """Return what a start has read; let the worlds be as it should then be."""
        return self.view(self.node, now)

    def restarted(self) -> None:
        """What the model knows beside the world is to be what was promised."""

    def hold(self, world: World, at: float) -> None:
        """Nothing of a world expires before `at`."""

    def teardown(self) -> None:
        jobs._SLICE, reliable._SLICE, groups._SLICE, snapshot._SLICE = self.slices
        try:
            if self.kept.is_open:
                self.turn()
                self.kept.crash()
        finally:
            shutil.rmtree(self.path)


def one_of(worlds: list[World], seen: World) -> World:
    """Return what there is: the only world, or of several, which may have been durable in
    part, what was seen, with all that is the same in each of them."""
    if len(worlds) == 1:
        assert seen == worlds[0]
    for key in {*seen, *(key for world in worlds for key in world)}:
        values = [world.get(key) for world in worlds]
        if all(value == values[0] for value in values):
            assert seen.get(key) == values[0], key
    return seen


EXAMPLES = int(os.environ.get("RQ_FUZZ_EXAMPLES", "0"))
CALM = settings(
    deadline=None,
    print_blob=True,
    max_examples=EXAMPLES or 25,
    # To find a shorter tale takes minutes: by hand only.
    phases=[each for each in Phase if EXAMPLES or each is not Phase.shrink],
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
