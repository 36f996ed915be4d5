"""Random graphs of messages that wait for each other, in several queues whose processes are
killed at named points, against a model: each runs exactly when the model says, never before
those that it waits for, and none is forgotten. A killed owner has lost all hints.

Meanwhile people let messages run, delete, edit and move them, also such as wait; folders are
lost, and a queue comes back from a copy of its directory.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time

import pytest
from harness.after_model import (
    DELETED,
    DONE,
    ERR,
    FAILED,
    LOST,
    NAMES,
    NOT_NEEDED,
    NOT_RUN,
    POINTS,
    SCRIPT,
    WAITS,
    Node,
    fate,
    graph,
)
from harness.queues import RunningQueue, kept, short
from harness.waiting import wait_until

from rq.errors import RQError

pytestmark = [pytest.mark.process, pytest.mark.slow]

LATE = range(3, 13, 2)  # those that wait until a person does something
# What becomes of a late message by what is done with it.
DECIDES = {
    "run": ("run_message", DONE),
    "move": ("run_message", DONE),
    "delete": ("delete_message", DELETED),
}


class World:
    def __init__(self, root, chance: random.Random) -> None:
        self.root, self.chance = root, chance
        self.queues = {n: RunningQueue(root, n, SCRIPT, num_workers=2) for n in NAMES}
        self.kills = 0

    def harm(self) -> None:
        """Kill a queue at once or at a named point, or start one that is dead."""
        queue = self.queues[self.chance.choice(NAMES)]
        if not queue.alive:
            queue.start()
        elif self.chance.random() < 0.3:
            queue.crash()
        elif self.chance.random() < 0.5:
            with contextlib.suppress(ProcessLookupError):
                queue.crash_at(self.chance.choice(POINTS))

    def heal(self) -> None:
        for queue in self.queues.values():
            if not queue.alive:
                self.kills += 1
                queue.start()

    def stop(self) -> None:
        """Stop all; one may be to die at a point that it passes now."""
        self.heal()
        for queue in self.queues.values():
            while queue.stop() != 0:
                queue.start()

    def start(self) -> None:
        for queue in self.queues.values():
            queue.start()

    def ask(self, name: str, command: str, arg: object) -> object:
        """Ask until there is an answer."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(RQError, OSError):
                word, answer = self.queues[name].ask(command, arg)
                if word == "ok":
                    return answer
                assert "answer" in answer or "say" in answer or "busy" in answer, answer
            self.heal()
        raise AssertionError(f"{name} does not answer {command}")

    def stands(self, node: Node) -> str:
        if node.fate in (DELETED, LOST):
            return node.fate
        message = self.message(node)
        if message["state"] in ("que", "run", "prep"):
            return WAITS
        result = message["result"]
        return NOT_RUN if result.get("outcome") == NOT_RUN else result["cause"]

    def message(self, node: Node) -> dict:
        """Return a message, which may go on elsewhere."""
        while True:
            queue, _, msg_id = node.place.partition("/")
            message = self.ask(queue, "get_message", {"msg_id": msg_id})
            place = message["result"].get("goes_on")
            if place is None and message["state"] != "relayed":
                return message
            if place is not None:
                node.been.append(short(node.place))
                node.place = place
            self.heal()  # else it may be on its way for ever

    def ran(self) -> list[str]:
        path = self.root / "ran"
        return path.read_text().splitlines() if path.exists() else []


def sent(world: World, node: Node, nodes: list[Node], at: int) -> None:
    fields = {"dest": node.queue, "param1": node.act, "_key": f"node/{at}"}
    if node.act == "late":
        fields |= {"param1": "done", "due": 4e9}
    if node.after:
        fields["after"] = [nodes[before].place for before in node.after]
        fields |= {"after_rule": node.rule, "after_fail": node.fail}
    full_id = world.ask(node.queue, "create_message", fields)
    node.place = f"{node.queue}/{short(str(full_id))}"


def settled(world: World, nodes: list[Node], harm: bool) -> None:
    """Wait until each message stands as the model says."""

    def all_stand() -> bool:
        if harm and world.chance.random() < 0.2 and world.kills < 12:
            world.harm()
        else:
            world.heal()
        return all(world.stands(node) == node.fate for node in nodes)

    try:
        wait_until(all_stand, 120)
    except AssertionError:
        wrong = [
            (n.place, n, world.stands(n)) for n in nodes if world.stands(n) != n.fate
        ]
        raise AssertionError(wrong) from None


@pytest.mark.parametrize("seed", range(3))
def test_each_message_runs_when_the_model_says(tmp_path, seed):
    chance = random.Random(seed)
    nodes = graph(chance, 30, LATE)
    world = World(tmp_path, chance)
    with contextlib.ExitStack() as stack:
        for queue in world.queues.values():
            stack.enter_context(kept(queue))
        for at, node in enumerate(nodes):
            sent(world, node, nodes, at)
            if chance.random() < 0.25:
                world.harm()
        for node in nodes:
            node.fate = fate(node, nodes, mended=False)
        settled(world, nodes, harm=True)
        check_order(world, nodes)
        act(world, nodes)
        settled(world, nodes, harm=True)
        check_order(world, nodes)
        mend(world, nodes)
        settled(world, nodes, harm=True)
        check_order(world, nodes)
        world.stop()
        world.start()
    assert world.kills >= 1  # how many more is chance


def act(world: World, nodes: list[Node]) -> None:
    """Do with late messages what is to be done with each, mend some that failed by an edit,
    and move some that wait."""
    lose(world, [node for node in nodes if node.deed == "lose"])
    for node in nodes:
        if node.fate == WAITS and (
            node.deed == "move" or (node.after and chosen(world))
        ):
            move(world, node)
        if node.deed in DECIDES:
            command, node.fate = DECIDES[node.deed]
            do(world, node, command)
        elif node.fate == ERR and node.act == "err" and chosen(world):
            do(world, node, "edit_message", changes={"param1": "done"})
            node.fate = DONE
        elif node.fate == WAITS:
            node.fate = fate(node, nodes, mended=False)
        if chosen(world):
            world.harm()


def do(world: World, node: Node, command: str, **more: object) -> None:
    """Do something with a message; that it was done already, and not answered, is no
    failure."""
    queue, msg_id = node.place.split("/")
    with contextlib.suppress(AssertionError):
        world.ask(queue, command, {"msg_id": msg_id, "who": "ann", **more})


def move(world: World, node: Node) -> None:
    """Move a message that waits, and follow it."""
    queue = node.place.partition("/")[0]
    other = NAMES[(NAMES.index(queue) + 1) % len(NAMES)]
    do(world, node, "move_message", to=other)
    world.message(node)


def chosen(world: World) -> bool:
    return world.chance.random() < 0.3


def lose(world: World, nodes: list[Node]) -> None:
    """Stop all, take folders away, and bring one queue back from a copy of itself."""
    world.stop()
    for node in nodes:
        queue, msg_id = node.place.split("/")
        shutil.rmtree(world.queues[queue].dir.path / "que" / msg_id)
        node.fate = LOST
    path = world.queues["u"].dir.path
    shutil.copytree(path, path.parent / "aside", symlinks=True)
    shutil.rmtree(path)
    (path.parent / "aside").rename(path)
    world.start()
    with contextlib.suppress(AssertionError):  # not every file system tells it apart
        world.ask("u", "restore", {"as": "same"})


def mend(world: World, nodes: list[Node]) -> None:
    """Let those succeed that can be mended: what has waited for them goes on, and what was
    decided stays so."""
    (world.root / "mended").touch()
    for node in nodes:
        if node.fate == ERR and node.act == "mend":
            do(world, node, "retry_message")
            node.fate = DONE
        elif node.fate == WAITS:
            node.fate = fate(node, nodes, mended=True)


def check_order(world: World, nodes: list[Node]) -> None:
    """None has begun before those have ended that it waits for, nor at all when the model
    says that it is not run."""
    ran = world.ran()
    starts, ends = {}, {}
    for at, line in enumerate(ran):
        word, msg_id = line.split()
        (starts if word == "start" else ends).setdefault(msg_id, at)
    for node in nodes:
        start = starts.get(short(node.place))
        if node.fate in (WAITS, LOST, DELETED, NOT_RUN, NOT_NEEDED, FAILED):
            assert start is None, node
        for before in node.after if start is not None else ():
            ids = {short(nodes[before].place), *nodes[before].been}
            if nodes[before].fate in (DONE, ERR) and ids & ends.keys():
                first = min(ends[each] for each in ids & ends.keys())
                assert first < start, (node, nodes[before])
