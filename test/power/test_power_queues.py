"""Every power cut in the life of real queue processes breaks no promise to a client."""

import random
import shutil

import pytest
from harness.extent import share
from harness.kills import site_at
from harness.waiting import wait_until
from power.disk import Mark
from power.proving import is_here, prove, queues_of, recorded_queues
from power.queue_stories import PATIENCE, SCRIPT, STORIES
from power.states import DISKS, NEAR, Model, States
from power.twice import FIRST, prove_twice

ENDED = ("done", "err")
pytestmark = pytest.mark.process


@pytest.fixture(scope="module", params=share(list(STORIES), 8, ci=3))
def disk(request, tmp_path_factory):
    return recorded_queues(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("model", share(DISKS, 1, ci=2))
def test_no_power_cut_breaks_a_promise_to_a_client(disk, model):
    proof = prove(disk, model, NEAR[model], some=0, way=queues_of(disk))
    assert proof.broken == []
    assert proof.states > 30


def test_no_second_power_cut_breaks_a_promise_to_a_client(disk):
    proof = prove_twice(disk, Model.ORDERED, FIRST, way=queues_of(disk))
    assert proof.broken == []
    assert proof.states > 20


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("model", DISKS)
def test_no_power_cut_breaks_one_whatever_is_left(disk, model, seed):
    way = queues_of(disk)
    proof = prove(disk, model, near=10, some=8, seed=seed, way=way)
    assert proof.broken == []


def test_a_queue_process_starts_after_any_power_cut_and_runs_what_waits(tmp_path):
    (tmp_path / "recorded").mkdir()
    disk = recorded_queues("served", tmp_path / "recorded")
    states = States(disk, Model.ORDERED)
    marks = [number for number, op in enumerate(disk.ops, 1) if isinstance(op, Mark)]
    afters = set(random.Random(1).sample(marks, 4))
    for choice in states.choices(near=1, some=0):
        if choice.after in afters and choice.about == "no data":
            place = tmp_path / f"root{choice.after}"
            started(place, states.tree(choice))


def started(place, tree):
    """Start a queue process over a state, and let all that waits there run."""
    with site_at(place) as site:
        queue = site.queue("a", SCRIPT)
        shutil.rmtree(queue.dir.path)
        tree.make(queue.dir.path.parent)
        is_here(queue.dir)
        queue.start()
        for msg_id in queue.ids():
            wait_until(lambda one=msg_id: queue.state(one) in ENDED, PATIENCE)
        queue.prove()
