"""When a group of bananaq goes: as soon as it makes no difference, and never sooner."""

import itertools

import orjson
import pytest
from harness.broker_node import Run, read

from rq.broker.state import groups, lines

NOTHING = {}


def group_names(run, queue=b"e"):
    there = run.node.groups.by_name.get(queue)
    return set() if there is None else set(there.groups)


def pass_by(run, seconds=0.0):
    """Let time pass, and all be done that is due then, slice by slice."""
    run.pass_by(seconds)
    while run.node.next_tick() == 0.0:
        run.pass_by(0.0)


def test_a_group_goes_when_all_up_to_its_pointer_is_over():
    run = Run()
    run.ask("QADD", "e", 5, "first")
    run.ask("QADD", "e", 60, "second")
    for group in ("early", "late"):
        run.ask("QGET", "e", group, "EX", 0)
    run.ask("QGET", "e", "late", "EX", 0)
    pass_by(run, 1)
    assert group_names(run) == {b"early", b"late"}
    pass_by(run, 5)
    assert group_names(run) == {b"late"}, "it would get the second one again"
    assert run.ask("QGET", "e", "late") is None
    assert run.ask("QGET", "e", "early")[1] == b"second"
    pass_by(run, 60)
    assert run.node.groups.by_name == NOTHING
    assert run.node.groups.groups == 0
    assert run.node.used_memory == 0


def test_a_group_stays_while_it_works_on_something():
    run = Run()
    run.ask("QADD", "e", 5, "x")
    ids = {g: run.ask("QGET", "e", g, "EX", 30)[0] for g in ("acks", "does not")}
    pass_by(run, 6)
    assert group_names(run) == {b"acks", b"does not"}
    assert run.ask("QACK", "e", "acks", ids["acks"]) == 1
    pass_by(run)
    assert group_names(run) == {b"does not"}
    pass_by(run, 30)
    assert run.node.groups.by_name == NOTHING
    assert run.node.groups.held == 0


def test_after_a_flush_what_is_in_progress_may_be_done_and_then_its_group_goes():
    run = Run()
    run.ask("QADD", "e", 60, "x")
    event_id, _ = run.ask("QGET", "e", "works", "EX", 30)
    run.ask("QGET", "e", "is done", "EX", 0)
    run.ask("QGET", "e", "gave back", "EX", 1)
    pass_by(run, 2)
    run.ask("QFLUSH", "e")
    pass_by(run)
    assert group_names(run) == {b"works"}
    assert run.ask("QACK", "e", "works", event_id) == 1
    pass_by(run)
    assert run.node.groups.by_name == NOTHING


def test_an_event_that_is_given_back_and_over_keeps_no_group():
    run = Run()
    run.ask("QADD", "e", 5, "x")
    run.ask("QADD", "e", 90, "y")
    run.ask("QGET", "e", "g", "EX", 1)
    pass_by(run, 2)
    run.ask("QGET", "e", "g", "EX", 0)
    pass_by(run, 5)
    assert group_names(run) == set()
    run.ask("QGET", "e", "g", "EX", 2)
    pass_by(run, 3)
    assert run.ask("QGET", "e", "g", "EX", 0)[1] == b"y"
    pass_by(run, 1)
    assert group_names(run) == {b"g"}
    assert run.ask("QGET", "e", "g") is None


@pytest.mark.parametrize("slices", range(8))
def test_no_finished_event_comes_again_wherever_a_snapshot_is_cut(slices):
    """Its events are over while it is written, and live again after a night off."""
    run = Run()
    run.ask("QADD", "e", 5, "x")
    run.ask("QADD", "e", 900, "y")
    for group in ("g", "h"):
        run.ask("QGET", "e", group, "EX", 0)
    run.ask("QGET", "e", "h", "EX", 0)
    source, seen = run.node.events_of_all(), len(run.lines)
    snapshot = list(itertools.islice(source, slices))
    pass_by(run, 6)
    snapshot += source
    written = [(0.0, orjson.dumps(lines.record(e))) for some in snapshot for e in some]
    node = read([*written, *run.lines[seen:]])
    node.groups.expire_from(run.now + 300)
    node.tick(run.now)
    again = node.groups.by_name[b"e"].next_for(b"g")
    assert again.contents == b"y"
    assert node.groups.by_name[b"e"].next_for(b"h") is None


def test_many_groups_go_in_slices_and_a_full_node_frees_itself_after_a_start():
    run = Run()
    run.ask("QADD", "e", 5, "x")
    number = 3 * groups.GROUPS_AT_ONCE
    for each in range(number):
        run.ask("QGET", "e", f"g{each}", "EX", 0)
    node = read(run.lines)
    node.memory.limit = node.used_memory
    now = run.now + 6
    assert node.is_full(now)
    turns = 0
    node.tick(now)
    while node.next_tick() == 0.0:
        node.tick(now)
        turns += 1
    assert turns >= 2
    assert not node.is_full(now)
    assert node.groups.groups == 0
