"""Every power cut in a story breaks no promise: on the disks that it is given for, on
meaner ones, and where an error of the disk was told to somebody else."""

import pytest
from harness.extent import paired, share
from power.proving import prove, recorded
from power.states import DISKS, NEAR, Model
from power.stories import ONE_START, STORIES

CASES = paired(list(STORIES), DISKS)


@pytest.mark.parametrize(("story", "model"), share(CASES, 9, ci=6))
def test_no_power_cut_breaks_a_promise(story, model, tmp_path):
    proof = prove(recorded(story, tmp_path), model, near=NEAR[model], some=1)
    assert proof.broken == []
    assert proof.states > 50


@pytest.mark.slow
@pytest.mark.parametrize("story", ONE_START)
def test_a_checkpoint_hears_of_every_error_since_the_start(story, tmp_path):
    proof = prove(recorded(story, tmp_path), Model.DEAF, near=0, some=1)
    assert proof.broken == []


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("model", DISKS)
@pytest.mark.parametrize("story", STORIES)
def test_no_power_cut_breaks_a_promise_whatever_is_left(story, model, seed, tmp_path):
    proof = prove(recorded(story, tmp_path), model, near=12, some=10, seed=seed)
    assert proof.broken == []
