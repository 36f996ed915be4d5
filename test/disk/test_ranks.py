"""Priorities and keys of waiting messages outlive crashes, stops and lost indexes."""

import pytest
from harness.spool import a_message

from rq.config.settings import QueueConfig
from rq.message.rank import rank
from rq.queues.owner.backlog import Backlog
from rq.spool import checkpoint, index, journal_search
from rq.words.states import Event, Role, State

IDS = [f"20270115.0800.00.000.{n}" for n in range(1, 5)]
SETTINGS = {
    "concurrency": {"params": (1,), "max": 2},
    "fair_params": (2,),
}


def config(**settings):
    return QueueConfig(script="/bin/true", **settings)


def submit(spool, msg_id, **fields):
    spool.submit(a_message(msg_id, **fields))
    spool.commit()


def priorities(spool):
    return {msg_id: entry.rank.priority for msg_id, entry in spool.in_state(State.QUE)}


def taken(backlog, now=2e9):
    """Return all messages in the order in which they would start, one after the other."""
    ids = []
    while (msg_id := backlog.next_due(now)[0]) is not None:
        ids.append(msg_id)
    return ids


def restart(owner, how):
    if how == "crash":
        owner.crash()
    elif how == "stop":
        owner.stop()
    else:  # the journal alone does not tell: its lines lie before the checkpoint
        owner.spool.settle_all()
        owner.spool.commit()
        writing = index.Writing(owner.spool.dir_fd, index.lines_of(owner.spool))
        while writing.write_slice():
            pass
        writing.finish()
        point = checkpoint.begin(owner.spool, "boot")
        checkpoint.finish(owner.spool.dir_fd, owner.queue, point)
        owner.crash()
        if how == "no index":
            owner.queue.index.unlink()
    return owner.open()


HOW = ("crash", "stop", "checkpoint", "no index")


@pytest.mark.parametrize("how", HOW)
def test_priorities_are_those_from_before(owner, how):
    spool = owner.spool
    for msg_id, priority in zip(IDS, (0, 5, 9, 5), strict=True):
        submit(spool, msg_id, priority=priority)
    backlog = Backlog(spool, config())
    backlog.steer(IDS[3], priority=7)
    backlog.steer(IDS[2], priority=0, due=5.0)
    spool.commit()
    wanted = dict(zip(IDS, (0, 5, 0, 7), strict=True))
    assert priorities(spool) == wanted
    spool = restart(owner, how)
    assert priorities(spool) == wanted
    assert spool.read(IDS[3]).priority == 7
    assert taken(Backlog(spool, config())) == [IDS[3], IDS[1], IDS[2], IDS[0]]
    spool = restart(owner, "crash")
    assert priorities(spool) == wanted


@pytest.mark.parametrize("how", HOW)
def test_a_priority_goes_round_with_its_message(owner, how):
    spool = owner.spool
    submit(spool, IDS[0], priority=4)
    message = spool.claim(IDS[0], 0)
    spool.fire(IDS[0], Event.RETRY, Role.QUEUE, message=message.with_(count=1))
    spool.commit()
    spool = restart(owner, how)
    assert priorities(spool) == {IDS[0]: 4}


def test_keys_are_in_the_index_and_no_file_is_read_for_them(owner):
    spool = owner.spool
    for number, msg_id in enumerate(IDS):
        submit(spool, msg_id, param1="a", param2=number % 2, priority=number % 2)
    Backlog(spool, config(**SETTINGS))
    spool = restart(owner, "checkpoint")
    spool.read = None  # nobody may
    backlog = Backlog(spool, config(**SETTINGS))
    assert spool.entry(IDS[0]).rank is rank(0, '["a"]', '["0"]')
    assert backlog.exclusion_key(IDS[3]) == '["a"]'
    assert taken(backlog) == [IDS[1], IDS[3], IDS[0], IDS[2]]


def test_keys_follow_the_settings_in_force(owner):
    spool = owner.spool
    for msg_id in IDS:
        submit(spool, msg_id, param1="a", param2="b")
    backlog = Backlog(spool, config(**SETTINGS))
    backlog.reload(config(blocking_params=(2,)))
    assert backlog.exclusion_key(IDS[0]) == '["b"]'
    backlog.reload(config())
    assert backlog.exclusion_key(IDS[0]) is None
    assert spool.entry(IDS[0]).rank is rank(0, "", "")
    spool = restart(owner, "checkpoint")
    backlog = Backlog(spool, config(fair_params=(2,)))
    assert spool.entry(IDS[0]).rank is rank(0, "", '["b"]')


def test_a_file_whose_priority_is_none_has_the_least(owner):
    submit(owner.spool, IDS[0])
    owner.stop()
    path = owner.queue.path / "que" / IDS[0] / "msg"
    path.write_text(
        path.read_text().replace('"count":0', '"count":0,"priority":"high"')
    )
    owner.queue.index.unlink()
    spool = owner.open()
    assert priorities(spool) == {IDS[0]: 0}
    assert spool.read(IDS[0]).priority == 0


def test_starts_that_cannot_be_read_are_followed_by_a_pause(owner, monkeypatch):
    def lacks(*_):
        raise OSError(24, "Too many open files")

    submit(owner.spool, IDS[0])
    settings = {"per": "minute", "number": 6, "burst": 6}
    monkeypatch.setattr(journal_search, "claims", lacks)
    now = owner.clock.now
    backlog = Backlog(owner.spool, config(rate=settings))
    assert backlog.next_due(now) == (None, now + 10)
    assert backlog.rate_until(now) == now + 10
    assert backlog.next_due(now + 10) == (IDS[0], None)


# ---- equal messages


def submitted(backlog, spool, *fields):
    for msg_id, more in zip(IDS, fields, strict=False):
        submit(spool, msg_id, param1="same" if msg_id != IDS[3] else "other", **more)
        backlog.put(msg_id, spool.read(msg_id))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_equal_messages_have_the_highest_priority_and_the_earliest_due(
    owner, restarted, order
):
    """The one that is due is no more urgent than the fourth, which is older."""
    coalesced = config(coalesce_params=(1,))
    backlog, spool = Backlog(owner.spool, coalesced), owner.spool
    both = [{"due": 100.0}, {"due": 3e9, "priority": 5}]
    first, second = (both[number] for number in order)
    older = {"due": 50.0, "priority": 3}
    submitted(backlog, spool, first, second, {"due": 200.0}, older)
    if restarted:
        spool = restart(owner, "checkpoint")
        backlog = Backlog(spool, coalesced)
    leader = IDS[order.index(0)]
    assert backlog.next_due(2e9)[0] == leader
    assert set(backlog.riders_for(leader)) == {*IDS[:3]} - {leader}


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_equal_messages_have_their_own_priority_when_the_urgent_one_has_left(
    owner, how
):
    spool = owner.spool
    backlog = Backlog(spool, config(coalesce_params=(1,)))
    urgent, older = {"due": 3e9, "priority": 5}, {"due": 50.0, "priority": 3}
    submitted(backlog, spool, {"due": 100.0}, urgent, {"due": 200.0}, older)
    if how == "gone":
        backlog.remove(IDS[1])
        spool.fire(IDS[1], Event.DISCARD, Role.CREATOR)
    else:
        backlog.steer(IDS[1], priority=1)
    assert backlog.next_due(2e9)[0] == IDS[3]
    spool.claim(IDS[3], 0)
    assert backlog.next_due(2e9)[0] == IDS[0]
