"""What a broker finds when it starts: all that was durable, or a sentence that says what is
missing."""

import os
import re
import shutil
import time

import pytest
from harness.broker_store import KeptNode
from harness.broker_world import Clocks

from rq.broker import check
from rq.broker.cluster.gossip import Address
from rq.broker.desks.group_desk import Getting
from rq.broker.state import reliable
from rq.broker.state.bounds import Room
from rq.broker.store import compaction
from rq.broker.store import place as place_of_node
from rq.broker.store.clock import LONG, Clock, Machine, Reading
from rq.broker.store.place import KeptMembers, Place, read_members
from rq.errors import Damaged
from rq.journal import history


@pytest.fixture
def kept(tmp_path):
    kept = KeptNode(tmp_path / "node")
    kept.open()
    yield kept
    kept.close()


def fill(kept, *bodies):
    for body in bodies:
        kept.add(body)
        kept.commit()


def refused(kept):
    with pytest.raises(Damaged) as caught:
        kept.open()
    assert "\n" not in str(caught.value)
    assert str(kept.place.path) in str(caught.value)
    return str(caught.value)


def test_what_was_committed_is_there_after_a_crash_and_after_a_stop(kept):
    fill(kept, b"one", b"\xff")
    kept.again()
    assert kept.bodies() == [b"one", b"\xff"]
    kept.stop()
    kept.open()
    assert kept.bodies() == [b"one", b"\xff"]


def test_a_snapshot_and_what_came_after_it_are_there(kept):
    fill(kept, b"before")
    kept.snapshot()
    fill(kept, b"after")
    kept.again()
    assert kept.bodies() == [b"before", b"after"]


@pytest.mark.parametrize("cut", [2, 20, 200])
def test_a_snapshot_that_is_not_whole_is_damage(kept, cut):
    fill(kept, *[b"%d" % n for n in range(9)])
    kept.snapshot()
    kept.crash()
    data = kept.place.snapshot.read_bytes()
    kept.place.snapshot.write_bytes(data[:-cut])
    assert "not whole" in refused(kept)


def test_a_snapshot_without_its_journal_is_damage(kept):
    fill(kept, b"one")
    kept.snapshot()
    fill(kept, b"two")
    kept.stop()
    shutil.rmtree(kept.place.path / "history")
    assert "another journal" in refused(kept)


def segments(kept):
    place = kept.place.journal_dir
    journal = history.journal_of(place, history.active_segments(place))
    return [each.path for each in history.segments(place, journal)]


def in_segments(kept, *bodies):
    """Let each body be in a segment of its own; return the files."""
    for body in bodies:
        fill(kept, body)
        kept.stop()
        kept.open()
    kept.stop()
    return segments(kept)


def test_a_journal_whose_beginning_is_missing_is_damage(kept):
    in_segments(kept, b"one", b"two")[0].unlink()
    assert "begins with event" in refused(kept)


def test_a_journal_that_begins_after_its_snapshot_ends_is_damage(kept):
    fill(kept, b"one")
    kept.snapshot()
    files = in_segments(kept, b"two", b"three")
    for path in files[:-1]:
        path.unlink()
    assert "begins with event" in refused(kept)


def test_a_journal_with_a_hole_is_damage(kept):
    files = in_segments(kept, b"one", b"two", b"three")
    files[len(files) // 2].unlink()
    assert "the next segment follows" in refused(kept)


def test_a_journal_that_ends_before_its_snapshot_is_damage(kept):
    files = in_segments(kept, b"one", b"two")
    saved = {path: path.read_bytes() for path in files[:-1]}
    kept.open()
    kept.snapshot()
    kept.stop()
    for path in segments(kept):
        path.unlink()
    for path, data in saved.items():
        path.write_bytes(data)
    assert "ends too early" in refused(kept)


@pytest.mark.parametrize("times", [1, 3])
def test_a_snapshot_before_there_is_anything_hinders_no_start(kept, times):
    for _ in range(times):
        kept.snapshot()
    kept.again()
    kept.stop()
    kept.open()
    fill(kept, b"one")
    kept.again()
    assert kept.bodies() == [b"one"]


def test_a_segment_that_was_never_sealed_hinders_no_start_when_the_next_are_gone(kept):
    """Its sealing failed; a snapshot let those after it go."""
    first, second, *_ = in_segments(kept, b"one", b"two", b"three")
    kept.open()
    data = first.read_bytes()
    kept.snapshot()
    fill(kept, b"four")
    kept.stop()
    for path in (first, second):
        path.unlink(missing_ok=True)
    left = kept.place.path / "journal" / first.name.partition("-")[0]
    left.write_bytes(data)
    os.truncate(left, 16384)
    place_of_node.accept(kept.place, copy=False)  # the test has made that file
    kept.open()
    assert kept.bodies() == [b"one", b"two", b"three", b"four"]
    kept.again()
    assert kept.bodies() == [b"one", b"two", b"three", b"four"]


# ---- copies


def test_a_copy_of_a_directory_waits_for_a_person(kept):
    fill(kept, b"one")
    kept.stop()
    copy = KeptNode(kept.place.path.with_name("copy"))
    shutil.copytree(kept.place.path, copy.place.path)
    assert "`rq broker accept`" in refused(copy)
    place_of_node.accept(copy.place, copy=True)
    copy.open()
    assert copy.bodies() == [b"one"]
    fill(copy, b"two")
    copy.again()
    assert copy.bodies() == [b"one", b"two"]
    copy.close()
    kept.open()


def test_a_directory_that_was_moved_is_the_same(kept):
    fill(kept, b"one")
    kept.stop()
    moved = KeptNode(kept.place.path.with_name("moved"))
    os.rename(kept.place.path, moved.place.path)
    moved.open()
    assert moved.bodies() == [b"one"]
    moved.close()
    kept.open()


def test_new_jobs_are_refused_while_a_snapshot_would_find_no_room(kept, monkeypatch):
    monkeypatch.setattr(compaction, "SPARE", 2**62)
    kept.store.mind_snapshot(kept.node)
    assert kept.store.no_space.startswith("no space: ")


def test_a_check_names_a_job_whose_body_is_gone_or_damaged(kept):
    fill(kept, b"x" * 600_000, b"y" * 600_000, b"small")
    gone, other, _ = kept.node.jobs.by_id
    paths = sorted(kept.place.bodies.iterdir())
    kept.stop()
    assert check.jobs_in(kept.place.path) == 3
    os.truncate(paths[1], 9)
    with pytest.raises(
        Damaged,
        match=re.escape(
            f"{paths[1]} is not what was written to it: the body of {other}"
        ),
    ):
        check.jobs_in(kept.place.path)
    paths[0].unlink()
    with pytest.raises(
        Damaged, match=re.escape(f"the body of {gone} in the queue q (and 1 more)")
    ):
        check.jobs_in(kept.place.path)
    kept.open()


def test_a_group_has_no_event_again_that_only_a_snapshot_knows_of(kept):
    kept.node.emit(came(7, kept.now + 60), kept.now)
    assert kept.node.consumers.get(b"e", Getting(b"g", 0.0), 0, kept.now).number == 7
    kept.commit()
    kept.snapshot()
    node = kept.again()
    assert node.groups.events == 1
    assert node.consumers.get(b"e", Getting(b"g", 0.0), 0, kept.now) is None


# ---- time


def test_no_id_comes_again_when_all_is_gone_and_the_time_of_day_was_put_back(tmp_path):
    clocks = Clocks()
    kept = KeptNode(tmp_path / "node", clocks.machine())
    kept.open()
    before = newest(kept, clocks)
    kept.node.desk.flush(kept.now)
    kept.node.messages.ack(b"k", [before[1]], kept.now)
    kept.node.tick(kept.now + 2)
    assert kept.node.size == (0, 0)
    kept.commit()
    for is_paused in (True, False):  # the second lets the journal before the first go
        kept.snapshot()
        kept.node.desk.pause(b"p", is_paused, False, kept.now)
        kept.commit()
        kept.again()
    clocks.wall -= 3600
    after = newest(kept, clocks)
    kept.close()
    assert after[0] > before[0]
    assert reliable.id_of(after[1]) > reliable.id_of(before[1])
    assert after[2] > before[2]


def newest(kept, clocks):
    """Take a job, a message and an event; return their places."""
    node, now, wall_ms = kept.node, kept.now, int(clocks.wall * 1000)
    kept.add(b"job")
    (msg_id,) = node.messages.push(b"k", [b"message"], now, wall_ms)
    node.messages.pop(b"k", 1, 0, Room(), now)
    number = node.groups.next_number(wall_ms * 1000)
    node.emit(came(number, now + 1), now)
    return node.jobs.last_ctime, msg_id, number


def reading(boot, seconds_ago, now=1000.0):
    return Reading(now, time.time() - seconds_ago, 5.0, boot)


def test_after_a_night_off_time_has_gone_on_and_what_is_over_goes():
    clock = Clock(reading("before", LONG / 2), Machine("after"))
    assert clock.now() - 1000.0 == pytest.approx(LONG / 2, abs=5)
    assert clock.grace == 0


def test_after_days_off_nothing_expires_for_a_while():
    clock = Clock(reading("before", LONG + 10), Machine("after"))
    assert 290 < clock.grace <= 300
    noted = Reading.from_json(clock.reading().to_json())
    assert Clock(noted, Machine("after")).grace == pytest.approx(clock.grace, abs=1)


def test_a_time_of_day_that_was_put_back_makes_no_clock_go_back():
    clock = Clock(reading("before", -LONG), Machine("after"))
    assert clock.now() >= 1000.0
    assert clock.grace == 0


def test_the_clock_goes_on_behind_the_last_line(tmp_path):
    clocks = Clocks()
    kept = KeptNode(tmp_path / "node", clocks.machine())
    kept.open()
    kept.commit()
    clocks.pass_by(50)  # less than there is between two notes of the clocks
    fill(kept, b"one")
    last = kept.now
    kept.crash()
    clocks.boot(-3600)
    kept.machine = clocks.machine()
    kept.open()
    assert kept.now >= last - 0.001
    kept.close()


def test_jobs_and_events_outlive_a_boot_whose_time_of_day_may_be_wrong(kept):
    job = kept.add(b"one", ttl=60.0)
    event = kept.node.groups.next_number(0)
    kept.node.emit(came(event, kept.now + 60), kept.now)
    kept.commit()
    later = Reading(kept.now, time.time() - 2 * LONG, 5.0, "before")
    kept.store._journal.append({"ts": 0, "ev": "clock", **later.to_json()})
    kept.commit()
    node = kept.again()
    node.tick(kept.now)
    assert list(node.jobs.by_id) == [job]
    assert node.groups.events == 1
    node.tick(kept.now + 301)
    assert not node.jobs.by_id
    assert node.groups.events == 0


def came(number, until):
    from rq.broker.state.groups import Came

    return Came(b"e", number, int(until * 1e6), b"contents")


def test_what_a_node_keeps_of_its_cluster_goes_into_its_own_directory_alone(kept):
    members = KeptMembers("127.0.0.1", (("a" * 40, Address("127.0.0.1", 1, 2)),))
    node_id = kept.place.node.read_text() if kept.place.node.exists() else ""
    away = kept.place.path.with_name("away")
    kept.place.path.rename(away)
    kept.place.path.mkdir()
    kept.store.keeping(members)()
    new_id = kept.store.new_node_id()
    assert list(kept.place.path.iterdir()) == []
    assert read_members(Place(away)) == members
    assert (away / "node").read_text() == f"{new_id}\n" != node_id
