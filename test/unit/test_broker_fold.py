"""The lines of a broker's node tell all of it, wherever a snapshot is taken."""

import itertools

import orjson
from harness.broker_node import COMMANDS, Run, read, told, with_ids
from hypothesis import given
from hypothesis import strategies as st

from rq.broker.state import groups, job, lines, reliable
from rq.broker.state.job import Added, Copied
from rq.broker.state.jobs import Jobs


@given(st.lists(COMMANDS, max_size=40), st.data())
def test_lines_tell_all_and_a_snapshot_in_the_middle_changes_nothing(commands, data):
    run, client = Run(), itertools.count(1)
    begins = data.draw(st.integers(0, len(commands)), label="snapshot begins")
    slices = data.draw(st.integers(0, 4), label="slices a command")
    snapshot, source, seen = [], None, 0
    for number, words in enumerate(commands):
        if number == begins:
            source, seen = run.node.events_of_all(), len(run.lines)
        for some in itertools.islice(source or (), slices):
            snapshot += [(run.now, orjson.dumps(lines.record(each))) for each in some]
        if words[0] == "pass":
            run.pass_by(words[1])
        else:
            run.ask(*with_ids(run, words), client=next(client))
    for some in source or ():
        snapshot += [(run.now, orjson.dumps(lines.record(each))) for each in some]
    known = told(run.node, run.now)
    run.keep()
    assert told(read(run.lines), run.now) == known
    if source is not None:
        after = read([*snapshot, *run.lines[seen:]])
        assert told(after, run.now) == known
        assert no_id_comes_again(run.node, after)


def test_a_key_that_is_deleted_before_its_slice_leaves_its_last_id():
    run = Run()
    run.ask("RQ.PUSH", "y", "a", "b")
    source, seen = run.node.events_of_all(), len(run.lines)
    snapshot = [next(source) for _ in range(2)]
    snapshot.append(next(source))  # of RedisRQ as a whole
    run.ask("DEL", "y")
    snapshot += source
    told_by_it = [(run.now, orjson.dumps(lines.record(e))) for s in snapshot for e in s]
    after = read([*told_by_it, *run.lines[seen:]])
    assert after.reliable.queue(b"y").last >= run.node.reliable.queue(b"y").last


def no_id_comes_again(before, after):
    keys = before.reliable.by_key
    gone = before.reliable.gone
    return all(
        after.reliable.queue(key).last >= (keys[key].last if key in keys else gone)
        for key in (*keys, b"another")
    )


@given(st.lists(COMMANDS, max_size=40))
def test_what_is_counted_is_there(commands):
    run, client = Run(), itertools.count(1)
    for words in commands:
        if words[0] == "pass":
            run.pass_by(words[1])
        else:
            run.ask(*with_ids(run, words), client=next(client))
        node = run.node
        assert sum(queue.held for queue in node.jobs.queues.values()) == len(
            node.jobs.by_id
        )
        queued = {
            each.job_id for queue in node.jobs.queues.values() for each in queue.jobs
        }
        assert queued == {
            each.job_id
            for each in node.jobs.by_id.values()
            if each.state is job.State.QUEUED
        }
        every = [g for q in node.groups.by_name.values() for g in q.groups.values()]
        held = sum(len(group.in_progress) + len(group.redo) for group in every)
        assert (node.groups.groups, node.groups.held) == (len(every), held)
        for queue in node.groups.by_name.values():
            assert {
                (number, group) for number in queue.redo for group in queue.redo[number]
            } == {
                (number, group)
                for group in queue.groups.values()
                for number in group.redo
            }
        bodies = [each.body for each in node.jobs.by_id.values()]
        assert node.jobs.weight.bytes == sum(map(len, bodies))


def test_an_id_is_of_one_message_even_when_its_key_was_deleted_and_time_steps_back():
    run = Run()
    (first,) = run.ask("RQ.PUSH", "k", "first")
    run.ask("RQ.POP", "k")
    run.ask("DEL", "k")
    run.now -= 5
    begins = len(run.lines)
    snapshot = [
        (run.now, orjson.dumps(lines.record(each)))
        for some in run.node.events_of_all()
        for each in some
    ]
    found = read([*snapshot, *run.lines[begins:]])
    for node in (run.node, found):
        run.node = node
        (second,) = run.ask("RQ.PUSH", "k", "second")
        assert reliable.id_of(second) > reliable.id_of(first)
        run.ask("RQ.POP", "k")
        assert run.ask("RQ.ACK", "k", first) == []


def test_a_key_that_is_deleted_while_a_snapshot_is_written_is_not_there():
    run = Run()
    run.ask("RQ.PUSH", "k", "first", "second")
    begins, snapshot = len(run.lines), []
    for some in run.node.events_of_all():
        snapshot += [(run.now, orjson.dumps(lines.record(each))) for each in some]
        run.ask("DEL", "k")
    run.ask("RQ.PUSH", "k", "third")
    found = read([*snapshot, *run.lines[begins:]])
    assert told(found, run.now) == told(run.node, run.now)
    assert list(found.reliable.by_key[b"k"].undelivered.values()) == [b"third"]
    assert found.reliable.messages == 1


def test_copies_of_jobs_go_with_them_that_a_snapshot_tells_of_behind_their_flush():
    run = Run()
    run.node.emit(added("old", 1), run.now)
    run.node.emit(Copied("old", 2, ("ab" * 20, "cd" * 20), True, False, 0), run.now)
    run.keep()
    snapshot = [run.lines.pop(), run.lines.pop()][::-1]
    run.node.desk.flush(run.now)
    run.node.emit(added("new", 2), run.now)
    run.keep()
    found = read([*snapshot, run.lines[-1], *run.lines])
    assert list(found.jobs.by_id) == ["new"]
    assert not found.jobs.spreads.by_job
    found.tick(run.now + 10)


def added(name, ctime):
    return job.Added(name, b"q", b"b", ctime, 1000.0, 90.0, 5.0, 0.0, 1005.0, True)


def test_a_message_that_is_handed_out_while_a_snapshot_is_written_is_in_it():
    run = Run()
    run.ask("RQ.PUSH", "k", "first", "second")
    run.ask("RQ.POP", "k")
    begins, snapshot = len(run.lines), []
    source = run.node.events_of_all()
    for some in source:
        snapshot += [(run.now, orjson.dumps(lines.record(each))) for each in some]
        if run.node.reliable.by_key[b"k"].undelivered and b"first" in snapshot[-2][1]:
            run.ask("RQ.POP", "k")
    found = read([*snapshot, *run.lines[begins:]])
    assert told(found, run.now) == told(run.node, run.now)
    assert len(found.reliable.by_key[b"k"].delivered) == 2


def test_a_queue_of_events_that_goes_while_a_snapshot_is_written_is_left_out():
    run = Run()
    run.ask("QADD", "gone", 1, "x")
    run.ask("QADD", "stays", 60, "y")
    source = run.node.groups, groups.events_of(run.node.groups)
    next(source[1])
    next(source[1])
    run.ask("QADD", "late", 60, "z")
    run.pass_by(2)
    assert [event.queue for some in source[1] for event in some] == [b"stays"]


def test_a_message_that_goes_back_while_a_snapshot_is_written_is_in_it():
    run = Run()
    run.ask("RQ.PUSH", "k", "first", "second")
    run.ask("RQ.POP", "k")
    ((_, back),) = run.node.handed
    begins, snapshot = len(run.lines), []
    for some in run.node.events_of_all():
        snapshot += [(run.now, orjson.dumps(lines.record(each))) for each in some]
        if b"name" in snapshot[-1][1] and run.node.reliable.by_key[b"k"].delivered:
            source = list(run.node.reliable.by_key[b"k"].delivered)
            assert len(source) == 1
            back(run.now)
            run.keep()
    found = read([*snapshot, *run.lines[begins:]])
    assert told(found, run.now) == told(run.node, run.now)
    assert len(found.reliable.by_key[b"k"].undelivered) == 2


def test_times_that_jobs_have_in_common_take_memory_once():
    jobs = Jobs()
    for n in range(2):
        ttl, retry = float("86400"), float("300")  # each is read: objects of their own
        added = Added(f"D-{n}", b"q", b"", n, 5.0 + n, ttl, retry, 0.0, 9.0, True)
        jobs.apply(added, 5.0)
    first, second = jobs.by_id.values()
    assert first.ttl is second.ttl
    assert (first.expires, second.expires) == (86405.0, 86406.0)
    jobs.expire_from(86405.5)
    assert (first.expires, second.expires) == (86405.5, 86406.0)
    assert first.wakes == 9.0
