"""Bodies of a broker that lie on disk while memory is short: what is handed out is what
came, whatever happens between."""

import pytest
from harness.broker_store import KeptNode

from rq.broker.state.body import Place
from rq.broker.state.bounds import Room
from rq.broker.state.groups import Came
from rq.broker.store import moving
from rq.broker.store.bodies import weight
from rq.errors import Damaged

BODIES = [b"%04d " % n + bytes(range(256)) * 8 for n in range(60)]
SHORT = 100_000  # bytes: half of it is less than they take


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(moving, "BATCH", 20_000)
    kept = KeptNode(tmp_path / "node")
    kept.limit = SHORT
    kept.open()
    yield kept
    kept.close()


def fill(kept):
    """Add a job, a message and an event of each body, some at a time."""
    node = kept.node
    for body in BODIES:
        kept.add(body)
        wall = int(kept.now * 1000)
        node.messages.push(b"k", [body, b"small"], kept.now, wall)
        number = node.groups.next_number(wall * 1000)
        until = int((kept.now + 3600) * 1e6)
        node.emit(Came(b"e", number, until, body), kept.now)
        kept.commit()


def held(kept):
    """Return all bodies as clients get them."""
    node, read = kept.node, kept.store.bodies.read
    jobs = [read(body) for body in kept.bodies()]
    messages = read(list(node.reliable.by_key[b"k"].undelivered.values()))
    events = [
        read(event.contents) for event in node.groups.by_name[b"e"].events.values()
    ]
    return jobs, messages[::2], events


def files(kept):
    return sorted(kept.place.bodies.iterdir())


def test_bodies_move_until_those_in_memory_have_their_share(kept):
    fill(kept)
    assert kept.node.body_bytes > SHORT
    kept.move()
    assert kept.node.body_bytes <= SHORT // 2 + len(BODIES[0])
    assert held(kept) == (BODIES, BODIES, BODIES)
    placed = sum(room.weight.placed for room in (kept.node.jobs, kept.node.reliable))
    assert 0 < placed < 2 * len(BODIES)
    assert len(files(kept)) > 2


def test_what_came_first_stays_in_memory(kept):
    fill(kept)
    kept.move()
    assert not isinstance(kept.bodies()[0], Place)
    assert isinstance(kept.bodies()[-1], Place)


def test_a_start_finds_them_in_lines_or_in_files_and_keeps_no_more_in_memory(kept):
    fill(kept)
    kept.move()
    kept.again()  # no snapshot names a file
    assert kept.node.body_bytes <= SHORT // 2 + 2 * moving.BATCH
    assert held(kept) == (BODIES, BODIES, BODIES)
    kept.move()
    kept.snapshot()
    kept.again()
    assert kept.node.body_bytes <= SHORT // 2 + moving.BATCH
    assert held(kept) == (BODIES, BODIES, BODIES)
    kept.limit = 10**9
    kept.snapshot()
    kept.again()
    assert held(kept) == (BODIES, BODIES, BODIES)


def test_those_that_came_before_memory_was_short_move_too(kept):
    kept.node.memory.limit = 10**9
    fill(kept)
    kept.move()
    assert files(kept) == []
    kept.node.memory.limit = SHORT
    kept.move()
    assert kept.node.body_bytes <= moving.SHARE * SHORT * moving._MORE
    assert held(kept) == (BODIES, BODIES, BODIES)


def test_a_file_goes_when_the_last_of_its_bodies_is_gone(kept):
    fill(kept)
    kept.move()
    node, jobs = kept.node, sorted(kept.node.jobs.by_id)
    assert node.desk.remove(jobs, "acked", kept.now) == len(BODIES)
    given = node.messages.pop(b"k", 200, 0, Room(), kept.now)
    node.messages.ack(b"k", [msg_id for msg_id, _ in given], kept.now)
    kept.commit()
    kept._settle()
    assert files(kept) != []  # events are left
    del given
    node.groups.settle(kept.now + 7200, 1000)
    kept.commit()
    kept._settle()
    assert files(kept) == []
    assert (node.body_bytes, node.groups.weight.placed) == (0, 0)


def test_a_job_that_ends_while_its_body_moves_leaves_nothing(kept):
    fill(kept)
    kept.store._moving.go_on()  # a file is being written
    kept.node.desk.remove(list(kept.node.jobs.by_id), "acked", kept.now)
    kept.commit()
    kept.move()
    assert kept.node.jobs.weight.bytes == kept.node.jobs.weight.placed == 0
    assert held(kept)[1:] == (BODIES, BODIES)


def test_a_body_at_another_place_of_its_file_is_not_taken_for_it(kept):
    fill(kept)
    kept.move()
    first, second = [body for body in kept.bodies() if isinstance(body, Place)][:2]
    first.offset, second.offset = second.offset, first.offset
    with pytest.raises(Damaged, match="is not what was written to it"):
        kept.store.bodies.read(first)


def test_the_bodies_of_a_long_command_share_a_file(kept):
    some = [b"k", *BODIES, b"small", *BODIES]
    many = some * 10
    assert not weight(some)[0]
    assert weight(many)[0]
    stored = kept.store.bodies.keep(many)
    assert len(files(kept)) == 1
    assert stored[0] == b"k"
    assert stored[len(BODIES) + 1] == b"small"
    assert kept.store.bodies.read(stored) == many
