"""Random flows, in several queues whose owners are killed while they are sent and run,
against a model: all of a flow runs, each message as the graph says, or nothing of it."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import replace

import pytest
from harness.after_model import (
    DONE,
    ERR,
    FAILED,
    NAMES,
    NOT_NEEDED,
    NOT_RUN,
    POINTS,
    SCRIPT,
    WAITS,
    Node,
    graph,
)
from harness.after_model import fate as fate_alone
from harness.flows import FLOW, SENDER
from harness.queues import running_queue
from harness.waiting import wait_until

from rq.builtin.flow import deeds, door, look
from rq.errors import WrongState
from rq.flow import marks
from rq.flow.marks import Mark
from rq.flow.plan import parse

pytestmark = pytest.mark.process

MARKS = {
    DONE: Mark.DONE,
    ERR: Mark.FAILED,
    FAILED: Mark.FAILED,
    NOT_RUN: Mark.NOT_RUN,
    NOT_NEEDED: Mark.NOT_RUN,
    WAITS: Mark.WAITS,
}
SENDS = ("flow:before-send", "flow:between-sends")


class World:
    def __init__(self, queues, chance: random.Random, most_kills: int) -> None:
        self.queues, self.chance = queues, chance
        self.root = queues["flow"].root
        self.kills, self.most_kills = 0, most_kills
        self.armed = set[str]()

    def harm(self) -> None:
        """Kill an owner at once or at a named point, or let it be."""
        name = self.chance.choice([*self.queues])
        queue = self.queues[name]
        if not queue.alive or self.kills >= self.most_kills:
            return
        if self.chance.random() < 0.4:
            queue.crash()
        else:
            with contextlib.suppress(ProcessLookupError):
                queue.crash_at(self.chance.choice(POINTS))
                self.armed.add(name)

    def heal(self) -> None:
        for queue in self.queues.values():
            if not queue.alive:
                self.kills += 1
                queue.start()
                queue.ask("status")

    def calm(self) -> None:
        """Let no owner die any more."""
        for name in self.armed:
            if self.queues[name].alive:
                self.queues[name].crash()
        self.armed.clear()
        self.heal()

    def kill_sender(self) -> None:
        point = f"{self.chance.choice(SENDS)}#{self.chance.randrange(1, 6)}"
        (self.root.path / "kill").write_text(point)

    def send(self, nodes: list[Node], *more: dict[str, object]) -> str:
        messages = [message(at, node) for at, node in enumerate(nodes)]
        return door.make(self.root, parse([*messages, *more]), {}).msg_id

    def mark(self, msg_id: str) -> dict[str, Mark]:
        flow = look.flow_of(self.root, msg_id)
        return {node.name: flow.mark_of(node) for node in flow.plan.nodes}

    def settled(self, msg_id: str, wanted: dict[str, Mark], harm: bool = True) -> None:
        """Wait until each message of a flow stands as the model says."""

        def all_stand() -> bool:
            if harm and self.chance.random() < 0.15:
                self.harm()
            self.heal()
            return self.mark(msg_id) == wanted

        try:
            wait_until(all_stand, 120)
        except AssertionError:
            stands = self.mark(msg_id)
            wrong = {n: (stands[n], w) for n, w in wanted.items() if stands[n] != w}
            raise AssertionError(wrong) from None

    def ran(self) -> list[tuple[str, str]]:
        path = self.root.path / "ran"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(word, place) for word, _, place in (x.partition(" ") for x in lines)]

    def messages(self) -> int:
        """Return how many messages the queues hold, in whatever state."""
        counts = (self.queues[name].ask("num_messages") for name in NAMES)
        return sum(sum(each.values()) for each in counts)


def message(at: int, node: Node) -> dict[str, object]:
    return {
        "name": f"n{at}",
        "dest": node.queue,
        "param1": node.act,
        "after": [f"n{before}" for before in node.after],
        "after_rule": node.rule,
        "after_fail": node.fail,
    }


@contextlib.contextmanager
def world(path, chance: random.Random, most_kills: int):
    with contextlib.ExitStack() as stack:
        queues = {
            name: stack.enter_context(
                running_queue(path, SCRIPT, name=name, num_workers=2)
            )
            for name in NAMES
        }
        flow = running_queue(path, SENDER, name="flow", **FLOW)
        queues["flow"] = stack.enter_context(flow)
        here = World(queues, chance, most_kills)
        yield here
        here.calm()


def fate(node: Node, nodes: list[Node], mended: bool) -> str:
    """As of messages that are sent alone; but a rule counts where it names no other, too: a
    message of a flow waits at least for the one that sends it."""
    if not node.after and node.rule == "failed":
        return NOT_NEEDED
    return fate_alone(node, nodes, mended)


def decide(nodes: list[Node], *, mended: bool) -> dict[str, Mark]:
    for node in nodes:
        node.fate = fate(node, nodes, mended=mended)
    return wanted(nodes)


def wanted(nodes: list[Node]) -> dict[str, Mark]:
    return {f"n{at}": MARKS[node.fate] for at, node in enumerate(nodes)}


def check_runs(here: World, msg_id: str, nodes: list[Node]) -> None:
    """Nothing ran before what it waits for, nor against the model, nor more often than its
    owner has begun it."""
    sent = look.flow_of(here.root, msg_id).sent
    rows = here.ran()
    starts = Counter(place for word, place in rows if word == "start")
    begun, ended = {}, {}
    for at, (word, place) in enumerate(rows):
        (begun if word == "start" else ended).setdefault(place, at)
    for at, node in enumerate(nodes):
        place = sent[f"n{at}"]
        queue, _, short = place.partition("/")
        if node.fate in (WAITS, NOT_RUN, NOT_NEEDED, FAILED):
            assert place not in begun, (at, node)
            continue
        attempts = here.queues[queue].get(short)["attempt"]
        assert 1 <= starts[place] <= attempts, (at, node)
        assert attempts == 1 or here.kills or node.act != "done", (at, node)
        for before in node.after:
            if nodes[before].fate in (DONE, ERR):
                assert ended[sent[f"n{before}"]] < begun[place], (at, before)


def check_number(here: World, nodes: list[Node]) -> None:
    """Each was sent once; those that are not run are acknowledged, and not counted."""
    assert here.messages() == sum(node.fate != NOT_RUN for node in nodes)


def retry(here: World, msg_id: str, nodes: list[Node]) -> None:
    """What failed runs again, and what waited for it goes on; what was decided stays so."""
    (here.root.path / "mended").touch()
    shut = here.root.path / "shut"  # none runs before all are retried
    shut.touch()
    done = deeds.retry(here.root, look.flow_of(here.root, msg_id), "me")
    shut.unlink()
    failed = [node for node in nodes if node.fate in (ERR, FAILED)]
    assert (done.changed, list(done.failures)) == (len(failed), [])
    for node in nodes:
        if node.fate == ERR:
            node.fate = ERR if node.act == "err" else DONE
        elif node.fate in (FAILED, WAITS):
            node.fate = fate(node, nodes, mended=True)
    here.settled(msg_id, wanted(nodes))


def rerun(here: World, msg_id: str, nodes: list[Node], mended: bool) -> None:
    """A part runs again as a new flow; those before stand as they have ended."""
    start = here.chance.randrange(len(nodes))
    chosen = {start}
    for at, node in enumerate(nodes):
        if not chosen.isdisjoint(node.after):
            chosen.add(at)
    flow = look.flow_of(here.root, msg_id)
    stands = {node.fate for node in nodes}
    if WAITS in stands and not stands.isdisjoint({ERR, FAILED}):
        with pytest.raises(WrongState):
            deeds.part(flow, f"n{start}")
        return
    again = door.make(here.root, deeds.part(flow, f"n{start}"), {}).msg_id
    fresh = [replace(node) for node in nodes]
    for at in sorted(chosen):
        fresh[at].fate = fate(fresh[at], fresh, mended=mended)
    named = {
        name: mark for name, mark in wanted(fresh).items() if int(name[1:]) in chosen
    }
    here.settled(again, named)


def cancel(here: World, msg_id: str, nodes: list[Node]) -> None:
    """What waits is cancelled, and nothing runs for that."""
    before = here.ran()
    flow = look.flow_of(here.root, msg_id)
    waiting = sum(node.fate == WAITS for node in nodes)
    done = deeds.cancel(here.root, flow, "me")
    assert (done.changed, list(done.failures)) == (waiting, [])
    stands = {
        name: Mark.CANCELLED if mark is Mark.WAITS else mark
        for name, mark in wanted(nodes).items()
    }
    here.settled(msg_id, stands)
    assert here.ran() == before
    assert marks.has_ended(marks.sums(stands.values()))


def whole(here: World, nodes: list[Node]) -> None:
    """A flow is sent, runs, is retried, sent again in part, and cancelled."""
    if here.chance.random() < 0.7:
        here.kill_sender()
    msg_id = here.send(nodes)
    here.settled(msg_id, decide(nodes, mended=False))
    here.calm()
    check_runs(here, msg_id, nodes)
    check_number(here, nodes)
    is_mended = here.chance.random() < 0.6
    if is_mended and any(node.fate in (ERR, FAILED) for node in nodes):
        retry(here, msg_id, nodes)
        here.calm()
        check_runs(here, msg_id, nodes)
        check_number(here, nodes)
    is_mended = (here.root.path / "mended").exists()
    rerun(here, msg_id, nodes, is_mended)
    here.calm()
    cancel(here, msg_id, nodes)


def refused(here: World, nodes: list[Node]) -> None:
    """A queue that is not there: all is discarded, though the sender and owners are killed."""
    last = {"name": "bad", "dest": "nowhere", "after": [f"n{len(nodes) - 1}"]}
    here.kill_sender()
    msg_id = here.send(nodes, last)

    def has_ended() -> bool:
        if here.chance.random() < 0.1:
            here.harm()
        here.heal()
        return look.flow_of(here.root, msg_id).state == "err"

    wait_until(has_ended, 120)
    here.calm()
    wait_until(lambda: here.messages() == 0)
    assert here.ran() == []


def stopped(here: World, nodes: list[Node]) -> None:
    """A flow that is cancelled while a queue keeps it from being sent whole."""
    away = here.queues[nodes[-1].queue]
    away.stop()
    msg_id = here.send(nodes)
    first = next(node for node in nodes if not node.after)
    if first.queue != nodes[-1].queue:  # its queue is sent to first
        wait_until(lambda: look.flow_of(here.root, msg_id).sent)
    deeds.cancel(here.root, look.flow_of(here.root, msg_id), "me")
    here.heal()
    wait_until(lambda: here.messages() == 0, 120)
    assert here.ran() == []


STORIES = (whole, whole, refused, stopped)


@pytest.mark.parametrize("story", [whole, refused, stopped])
def test_a_small_flow_runs_as_the_model_says_or_not_at_all(tmp_path, story):
    chance = random.Random(7)
    with world(tmp_path, chance, most_kills=2) as here:
        story(here, graph(chance, 10))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_flows_run_as_the_model_says_or_not_at_all(tmp_path, seed):
    chance = random.Random(seed)
    with world(tmp_path, chance, most_kills=10) as here:
        STORIES[seed % len(STORIES)](here, graph(chance, 40))
