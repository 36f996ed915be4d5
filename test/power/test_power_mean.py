"""No promise is broken on disks that are meaner than those it is given for, either."""

import pytest
from power.proving import prove, recorded
from power.states import Model
from power.stories import STORIES


@pytest.mark.parametrize("story", STORIES)
def test_a_mean_disk_breaks_no_promise(story, tmp_path):
    proof = prove(recorded(story, tmp_path), Model.MEAN, near=1, some=1)
    assert proof.broken == []
    assert proof.states > 50


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("story", STORIES)
def test_a_mean_disk_breaks_no_promise_whatever_is_left(story, seed, tmp_path):
    disk = recorded(story, tmp_path)
    proof = prove(disk, Model.MEAN, near=12, some=10, seed=seed)
    assert proof.broken == []


def test_a_mean_disk_breaks_no_promise_when_chance_tells_the_story(tmp_path):
    proof = prove(recorded("12", tmp_path), Model.MEAN, near=0, some=0)
    assert proof.broken == []
