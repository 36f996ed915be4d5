"""A power cut while the machine recovers from a power cut breaks no promise either."""

import os

import pytest
from power import queue_stories
from power.proving import queues_of, recorded, recorded_queues
from power.states import Model
from power.stories import STORIES
from power.twice import prove_twice

FIRST = int(os.environ.get("RQ_POWER_FIRST", "2"))  # states of a story; 0: all


@pytest.mark.parametrize("model", Model)
@pytest.mark.parametrize("story", STORIES)
def test_no_second_power_cut_breaks_a_promise(story, model, tmp_path):
    proof = prove_twice(recorded(story, tmp_path), model, FIRST)
    assert proof.broken == []
    assert proof.states > 20


@pytest.mark.process
@pytest.mark.parametrize("story", queue_stories.STORIES)
def test_no_second_power_cut_breaks_a_promise_to_a_client(story, tmp_path):
    disk = recorded_queues(story, tmp_path)
    proof = prove_twice(disk, Model.ORDERED, FIRST, way=queues_of(disk))
    assert proof.broken == []
    assert proof.states > 20
