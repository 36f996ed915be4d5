"""Every call fails once while messages join equal ones, or take their place: who was told
of one that stands is told the same again, and of two that replace each other one stands."""

import pytest
from harness.failing_calls import Story, each_may_fail, run

pytestmark = pytest.mark.process

LATER = 4e9


def send(life, **fields):
    return life.accepted(
        "create_message", dest=life.dest, due=LATER, unique_key="a", **fields
    )


def joins(life):
    """Send with keys; each gets the same answer once the disk is well again."""
    send(life)
    for key in ("k/1", "k/2", "k/3"):
        stands = send(life, _key=key)
        if stands is not None:
            life.promised += [] if stands in life.promised else [stands]
            life.later.append(lambda key=key, told=stands: same(life, key, told))
        life.rest()
    life.ask("seal")
    life.rest()


def same(life, key, told):
    assert send(life, _key=key) == told


def replaces(life):
    """Send again and again; whoever was answered last is there, and nobody else."""
    for _ in range(4):
        life.gone.update(life.promised)
        newest = send(life)
        if newest is not None:
            life.promised.append(newest)
        life.rest()
    life.ask("seal")
    life.later.append(lambda: one_waits(life))


def one_waits(life):
    assert life.queue.ask("num_messages")["que"] <= 1


@pytest.mark.parametrize(("tell", "conflict"), [(joins, "join"), (replaces, "replace")])
def test_each_call_may_fail_once(library, tmp_path, tell, conflict):
    story = Story(tell, settings={"unique": {"conflict": conflict}})
    calls = run(story, tmp_path / "count" / "root", library, 0, 0)
    assert len(calls) > 50
    wrong = each_may_fail(story, calls, tmp_path, library)
    assert not wrong, "\n".join(wrong)
