"""Bulks in the journal: how far one is, whatever a crash has left of its lines."""

import pytest

from rq.errors import NoSuchMessage
from rq.spool import bulk as bulks
from rq.spool.bulk import MOST_ENDED, Bulks, Standing, begin_bulk, end_bulk
from rq.words.states import Event, Role


def begun(owner, ids):
    lines = "".join(f"{msg_id}\n" for msg_id in ids).encode()
    listed = bulks.write_list(owner.queue, owner.spool.new_id(), lines)
    return begin_bulk(
        owner.spool,
        listed,
        action="ack",
        chosen_by={"state": "err"},
        by="anna",
    )


def failed(owner, number):
    ids = [owner.submit() for _ in range(number)]
    for msg_id in ids:
        owner.spool.fire(msg_id, Event.FAIL, Role.QUEUE)
    owner.apply()
    return ids


def dismiss(owner, bulk, ids, at, **more):
    more |= {"bulk": bulk.bulk_id, "at": at}
    owner.spool.fire(ids[at], Event.DISMISS, Role.CREATOR, **more)


def left(owner, bulk):
    """Return the ids that a bulk has still to look at."""
    again = owner.spool.bulks.get(bulk.bulk_id)
    return [
        chosen.msg_id
        for some in bulks.read_list(owner.queue, again, 2)
        for chosen in some
    ]


@pytest.mark.parametrize("covered", [0, 1, 2])
def test_a_crash_forgets_neither_the_bulk_nor_how_far_it_is(owner, covered):
    """The checkpoint may cover none, some or all of its lines."""
    ids = failed(owner, 5)
    steps = [
        lambda: begun(owner, ids),
        lambda: dismiss(owner, bulk, ids, 0),
        lambda: dismiss(owner, bulk, ids, 2, failed_again=1),
    ]
    bulk = steps[0]()
    for number, step in enumerate(steps[1:], 1):
        if number == covered:
            owner.checkpoint()
        step()
    owner.spool.commit()
    owner.again()
    again = owner.spool.bulks.get(bulk.bulk_id)
    assert (again.at, again.changed, again.failed_again) == (3, 2, 1)
    assert again.total == 5
    assert (again.action, again.by, again.filter) == ("ack", "anna", {"state": "err"})
    assert again.is_open
    assert left(owner, bulk) == ids[3:]


def test_what_was_not_committed_was_not_done(owner):
    ids = failed(owner, 3)
    bulk = begun(owner, ids)
    owner.spool.commit()
    dismiss(owner, bulk, ids, 0)
    owner.again()
    assert left(owner, bulk) == ids


def test_its_end_is_kept_over_a_crash_and_a_stop(owner):
    ids = failed(owner, 2)
    bulk = begun(owner, ids)
    dismiss(owner, bulk, ids, 0)
    end_bulk(owner.spool, bulk, Standing.CANCELLED)
    owner.spool.commit()
    owner.again()
    owner.stop()
    owner.open()
    again = owner.spool.bulks.get(bulk.bulk_id)
    assert (again.standing, again.changed) == (Standing.CANCELLED, 1)
    assert list(owner.queue.journal.glob("bulk-*")) == []


def test_of_those_that_have_ended_the_last_are_remembered(owner):
    ids = [begun(owner, []).bulk_id for _ in range(MOST_ENDED + 5)]
    for bulk_id in ids[1:]:
        bulk = owner.spool.bulks.get(bulk_id)
        end_bulk(owner.spool, bulk, Standing.DONE)
    kept = [bulk.bulk_id for bulk in owner.spool.bulks.all()]
    assert kept == [*reversed(ids[5:]), ids[0]]
    with pytest.raises(NoSuchMessage):
        owner.spool.bulks.get(ids[1])
    rows = owner.spool.bulks.to_json()
    assert Bulks(rows).to_json() == rows
