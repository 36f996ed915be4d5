"""A power cut while the machine recovers from a power cut breaks no promise either."""

import pytest
from harness.extent import paired, share
from power.proving import recorded
from power.states import DISKS
from power.stories import STORIES
from power.twice import FIRST, prove_twice

CASES = paired(list(STORIES), DISKS)


@pytest.mark.parametrize(("story", "model"), share(CASES, 9, ci=6))
def test_no_second_power_cut_breaks_a_promise(story, model, tmp_path):
    proof = prove_twice(recorded(story, tmp_path), model, FIRST)
    assert proof.broken == []
    assert proof.states > 20
