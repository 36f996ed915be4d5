"""Every power cut in a story breaks no promise, on the disks that it is given for."""

import pytest
from power.proving import prove, recorded
from power.states import Model
from power.stories import STORIES


@pytest.mark.parametrize("story", STORIES)
def test_no_power_cut_breaks_a_promise(story, tmp_path):
    proof = prove(recorded(story, tmp_path), Model.ORDERED, near=2, some=1)
    assert proof.broken == []
    assert proof.states > 50


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("story", STORIES)
def test_no_power_cut_breaks_a_promise_whatever_is_left(story, seed, tmp_path):
    disk = recorded(story, tmp_path)
    proof = prove(disk, Model.ORDERED, near=12, some=10, seed=seed)
    assert proof.broken == []
