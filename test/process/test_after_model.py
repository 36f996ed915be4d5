"""Random graphs of messages that wait for each other, in several queues whose processes are
killed at named points, against a model: each runs exactly when the model says, never before
those that it waits for, and none is forgotten. A killed owner has lost all hints.

Meanwhile people let messages run, delete, edit and move them, also such as wait; folders are
lost, and a queue comes back from a copy of its directory.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
from collections.abc import Iterator

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
    WAITS,
    Node,
    fate,
    graph,
)
from harness.after_parked import Parked
from harness.after_world import HARMS, World
from harness.queues import short
from harness.waiting import wait_until

pytestmark = pytest.mark.process

LATE = range(3, 13, 2)  # those that wait until a person does something
# What becomes of a late message by what is done with it.
DECIDES = {
    "run": ("run_message", DONE),
    "move": ("run_message", DONE),
    "delete": ("delete_message", DELETED),
}


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
    if harm:
        world.begin()

    order = sorted(nodes, key=lambda node: node.queue in world.looked_at_last)

    def all_stand() -> bool:
        if harm and world.chance.random() < 0.2 and world.kills < 12:
            world.harm()
        else:
            world.heal()
        return all(world.stands(node) == node.fate for node in order)

    try:
        wait_until(all_stand, 200)  # three rounds of asking, if hints are lost
    except AssertionError:
        wrong = [
            (n.place, n, world.stands(n)) for n in nodes if world.stands(n) != n.fate
        ]
        raise AssertionError(wrong) from None


WORLDS = {**HARMS, "parked": Parked}
SEEDS = range(2, 2 + int(os.environ.get("RQ_AFTER_SEEDS", "1")))
CASES = [
    ("kills", 0),
    ("kills", 1),
    *itertools.product(
        ["kills", "no hints", "clock jumps", "full disk", "long down", "parked"], SEEDS
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("harm", "seed"), CASES)
def test_each_message_runs_when_the_model_says(tmp_path, harm, seed):
    chance = random.Random(seed)
    nodes = graph(chance, 30, LATE)
    with WORLDS[harm].on(tmp_path / "root", chance) as world:
        world.place(nodes)
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
    assert world.harms or harm == "kills"


@pytest.mark.parametrize("harm", ["no hints", "clock jumps"])
def test_a_few_run_once_each_whatever_is_lost_beside_owners(tmp_path, harm):
    """No owner is killed, so no attempt is repeated."""
    chance = random.Random(7)
    nodes = graph(chance, 7)
    with HARMS[harm].on(tmp_path / "root", chance) as world:
        for at, node in enumerate(nodes):
            sent(world, node, nodes, at)
            node.fate = fate(node, nodes, mended=False)
        world.begin()
        settled(world, nodes, harm=False)
        check_order(world, nodes)
        starts = [line for line in world.ran() if line.startswith("start")]
    assert len(starts) == len(set(starts))
    assert sorted(starts) == sorted(
        f"start {node.place}" for node in nodes if node.fate in (DONE, ERR)
    )


def act(world: World, nodes: list[Node]) -> None:
    """Mend some that failed by an edit, move some that wait, and do with late messages what
    is to be done with each."""
    lose(world, [node for node in nodes if node.deed == "lose"])
    with shut(world):
        for node in nodes:  # before what waits for several of them may be decided
            if node.fate == ERR and node.act == "err" and chosen(world):
                do(world, node, "edit_message", changes={"param1": "done"})
                node.fate = DONE
        for node in nodes:
            if node.fate == WAITS and (
                node.deed == "move" or (node.after and chosen(world))
            ):
                move(world, node)
            if node.deed in DECIDES:
                command, node.fate = DECIDES[node.deed]
                do(world, node, command)
            elif node.fate == WAITS:
                node.fate = fate(node, nodes, mended=False)
            if chosen(world):
                world.harm()


@contextlib.contextmanager
def shut(world: World) -> Iterator[None]:
    """Let no script begin or end meanwhile: what is done with several messages is done at
    once then, for those that wait for two of them."""
    (world.root / "shut").touch()
    yield
    world.deafen()
    (world.root / "shut").resolve().unlink()


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
    with shut(world):
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
        word, place = line.split()
        (starts if word == "start" else ends).setdefault(place, at)
    for node in nodes:
        start = starts.get(node.place)
        if node.fate in (WAITS, LOST, DELETED, NOT_RUN, NOT_NEEDED, FAILED):
            assert start is None, node
        for before in node.after if start is not None else ():
            places = {nodes[before].place, *nodes[before].been}
            if nodes[before].fate in (DONE, ERR) and places & ends.keys():
                first = min(ends[each] for each in places & ends.keys())
                assert first < start, (node, nodes[before])
