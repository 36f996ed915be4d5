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


@pytest.mark.parametrize("seed", [3, 6])
def test_no_power_cut_breaks_a_promise_when_chance_tells_the_story(seed, tmp_path):
    proof = prove(recorded(f"{seed}", tmp_path), Model.ORDERED, near=0, some=1)
    assert proof.broken == []


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(10, 40))
@pytest.mark.parametrize("model", Model)
def test_no_power_cut_breaks_a_promise_in_many_stories(seed, model, tmp_path):
    proof = prove(recorded(f"{seed}", tmp_path), model, near=2, some=2, seed=seed)
    assert proof.broken == []
