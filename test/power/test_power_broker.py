"""Every power cut in the life of a broker breaks no promise to a client."""

from pathlib import Path

import pytest
from harness.extent import paired, share
from power.broker_story import STORIES, recover
from power.disk import Disk
from power.proving import Way, prove
from power.states import DISKS, NEAR
from power.trace import record

STORY = Path(__file__).with_name("broker_story.py")
WAY = Way(recover=recover)
CASES = paired(list(STORIES), DISKS)


def recorded(story, scratch):
    root = scratch / "root"
    root.mkdir()
    disk = Disk(root)
    ran = record(STORY, story, root, scratch=scratch)
    assert ran.status == 0, ran.output
    return disk.played(ran.calls)


@pytest.mark.parametrize(("story", "model"), share(CASES, 5, ci=3))
def test_no_power_cut_breaks_a_promise_of_a_broker(story, model, tmp_path):
    proof = prove(recorded(story, tmp_path), model, NEAR[model], some=1, way=WAY)
    assert proof.broken == []
    assert proof.states > 15


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", DISKS)
@pytest.mark.parametrize("story", STORIES)
def test_no_power_cut_does_so_whatever_is_left(story, model, seed, tmp_path):
    proof = prove(recorded(story, tmp_path), model, 10, some=8, seed=seed, way=WAY)
    assert proof.broken == []
