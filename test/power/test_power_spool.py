"""Every power cut in a story: no promise is broken, on disks of the kind we promise for."""

import pytest
from power.proving import prove, recorded
from power.states import Model
from power.stories import STORIES


@pytest.mark.parametrize("story", STORIES)
def test_no_power_cut_breaks_a_promise(story, tmp_path):
    proof = prove(recorded(story, tmp_path), Model.ORDERED, near=2, some=1)
    assert proof.broken == []
    assert proof.states > 50
