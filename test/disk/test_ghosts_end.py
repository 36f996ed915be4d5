"""Processes that an earlier owner left have ended: their messages go on, or wait once more."""

import asyncio
import contextlib
import os
import resource
import subprocess
from types import SimpleNamespace

import pytest

from rq.errors import Busy
from rq.proc import lease_holders, processes
from rq.queues.attempts.registry import Attempts
from rq.queues.bulk import retry
from rq.queues.runner.left_processes import LeftProcesses
from rq.scripts.slots import Slots
from rq.words.states import State


@contextlib.contextmanager
def no_descriptors():
    """Let this process open nothing more."""
    limit = resource.RLIMIT_NOFILE
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (3, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(limit, before)


def test_a_message_that_cannot_be_read_yet_is_taken_back_at_a_later_look(owner):
    ids = [owner.submit() for _ in range(2)]
    owner.apply()
    for number, msg_id in enumerate(ids):
        owner.spool.claim(msg_id, number)
    owner.apply()
    left = subprocess.Popen(["sleep", "600"])
    owner.opened.left_processes = [
        processes.Holder(left.pid, os.pidfd_open(left.pid), "", msg_id)
        for msg_id in ids
    ]
    waiting = []
    attempts = Attempts()
    backlog = SimpleNamespace(
        put=waiting.append, exclusion_key=lambda _: None, free_key=lambda *_: None
    )
    slots = Slots(owner.queue.path / "lease", owner.opened.lease_prefix, 1)
    wakeup = SimpleNamespace(ask=lambda: None)
    ghosts = LeftProcesses(owner.opened, attempts, backlog, slots, wakeup)
    ghosts.look()
    assert waiting == []
    left.kill()
    left.wait()
    with no_descriptors():
        ghosts.look()
    assert waiting == []
    assert list(attempts.left) == ids, "who asks is told why they are in run"
    ghosts.look()
    assert waiting == ids
    assert [owner.spool.find(one) for one in ids] == [State.QUE] * 2
    assert attempts.left == {}


def test_no_message_is_sent_round_again_beside_a_process_that_does_not_end(monkeypatch):
    left = processes.Holder(1, os.open("/dev/null", os.O_RDONLY), "", "a")
    monkeypatch.setattr(lease_holders, "end_processes", lambda *_: [left])

    async def story():
        owner = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            opened=SimpleNamespace(lease_prefix="q/"),
            settings=SimpleNamespace(grace=0.0),
        )
        retry.refuse_left("a", await retry.end_last_attempts(owner, ["a"]))

    with pytest.raises(Busy):
        asyncio.run(story())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(left.pidfd)
