"""No power cut breaks a promise when chance tells the story."""

import pytest
from harness.extent import share
from power.proving import prove, recorded
from power.states import DISKS, Model

SEEDS = ((3, Model.ORDERED), (6, Model.ORDERED), (12, Model.MEAN))


@pytest.mark.parametrize(("seed", "model"), share(SEEDS, 3, ci=3))
def test_no_power_cut_breaks_a_promise_when_chance_tells_the_story(
    seed, model, tmp_path
):
    some = 1 if model is Model.ORDERED else 0
    proof = prove(recorded(f"{seed}", tmp_path), model, near=0, some=some)
    assert proof.broken == []


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(10, 40))
@pytest.mark.parametrize("model", DISKS)
def test_no_power_cut_breaks_a_promise_in_many_stories(seed, model, tmp_path):
    proof = prove(recorded(f"{seed}", tmp_path), model, near=2, some=2, seed=seed)
    assert proof.broken == []
