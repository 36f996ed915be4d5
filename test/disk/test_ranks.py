"""Priorities and keys of waiting messages outlive crashes, stops and lost indexes."""

import pytest
from harness.spool import a_message

from rq.config.settings import QueueConfig
from rq.message.rank import rank
from rq.queues.owner.backlog import Backlog
from rq.spool import checkpoint, index
from rq.states import Event, Role, State

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
        writing = index.Writing(owner.queue, index.lines_of(owner.spool))
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
    assert spool.entry(IDS[0]).rank is rank(0, '["a"]', "[0]")
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
