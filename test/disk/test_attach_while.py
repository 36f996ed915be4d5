"""Attachments that come while their message is committed, alone or with others."""

import asyncio
import contextlib
import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from harness.spool import a_message

from rq.errors import Busy, Closed, NoSuchMessage, WrongState
from rq.queues.control import create
from rq.queues.control.idempotency import Preparer
from rq.spool import attach, decisions
from rq.words.states import Event, Role, State


@pytest.fixture
def letter(tmp_path):
    path = tmp_path / "letter"
    path.write_text("dear all\n")
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def prepared(spool):
    msg_id = spool.new_id()
    spool.prepare(a_message(msg_id))
    return msg_id


def test_what_comes_after_the_commit_is_refused_and_leaves_nothing(owner, letter):
    spool = owner.spool
    msg_id = prepared(spool)
    upload = attach.begin(spool, msg_id, "letter")
    taken = attach.copy(spool.dir_fd, letter, upload)
    spool.submit(spool.read(msg_id))
    spool.commit()
    spool.settle_all()
    with pytest.raises(NoSuchMessage):
        attach.end(spool, upload, taken)
    assert os.listdir(owner.queue.path / "prep") == []
    assert spool.find(msg_id) is State.QUE


def test_what_comes_after_the_removal_is_refused_and_leaves_nothing(owner, letter):
    spool = owner.spool
    msg_id = prepared(spool)
    upload = attach.begin(spool, msg_id, "letter")
    taken = attach.copy(spool.dir_fd, letter, upload)
    spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
    spool.commit()
    spool.settle_all()
    with pytest.raises(NoSuchMessage):
        attach.end(spool, upload, taken)
    assert os.listdir(owner.queue.path / "prep") == []


@pytest.mark.parametrize("together", [False, True])
def test_nothing_is_attached_or_removed_while_a_commit_waits(owner, letter, together):
    spool = owner.spool
    if together:
        one = decisions.open_one(spool, None, 60.0)
        msg_id = spool.new_id()
        spool.prepare_in(one.txn_id, a_message(msg_id))
    else:
        msg_id = prepared(spool)
    first, late = (attach.begin(spool, msg_id, name) for name in ("first", "late"))
    attach.end(spool, first, attach.copy(spool.dir_fd, letter, first))
    taken = attach.copy(spool.dir_fd, letter, late)
    if together:
        one.deciding = True
    else:
        spool.entries[msg_id].committing = True
    with pytest.raises(WrongState, match="is being committed"):
        attach.end(spool, late, taken)
    with pytest.raises(WrongState, match="is being committed"):
        attach.begin(spool, msg_id, "more")
    with pytest.raises(WrongState, match="is being committed"):
        attach.remove(spool, msg_id, "first")
    assert list(spool.read(msg_id).attachments) == ["first"]
    assert os.listdir(owner.queue.message("prep", msg_id) / "attach") == ["first"]


def test_a_message_is_not_accepted_while_the_second_of_two_attaches_goes_on(
    owner, letter
):
    spool = owner.spool
    msg_id = prepared(spool)
    go_on = threading.Event()

    def slowly(upload):
        assert go_on.wait(30)
        return attach.copy(spool.dir_fd, letter, upload)

    async def story():
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2) as threads:
            queue = SimpleNamespace(
                spool=spool,
                loop=loop,
                pools=SimpleNamespace(files=threads),
                admission=SimpleNamespace(check_open=lambda: None),
                queue=owner.queue,
            )

            def attached(name, take):
                upload = attach.begin(spool, msg_id, name)
                work = contextlib.ExitStack()  # as the command does
                work.enter_context(spool.working_on(msg_id))
                act = functools.partial(take, upload)
                return create._take(queue, work, upload, None, act)

            slow = loop.create_task(attached("slow", slowly))
            try:
                await attached(
                    "quick", functools.partial(attach.copy, spool.dir_fd, letter)
                )
                with pytest.raises(Busy, match="being worked on"):
                    spool.fire(msg_id, Event.COMMIT, Role.CREATOR)
                with pytest.raises(Busy, match="an attach has not ended"):
                    # Nor is its file swept away.
                    create._commit(queue, None, msg_id, Preparer("", True))
            finally:
                go_on.set()
            await slow

    asyncio.run(story())
    assert set(spool.read(msg_id).attachments) == {"quick", "slow"}
    spool.fire(msg_id, Event.COMMIT, Role.CREATOR)
    assert spool.find(msg_id) is State.QUE


def test_a_message_is_not_accepted_when_the_queue_has_closed_meanwhile(owner, letter):
    spool = owner.spool
    msg_id = prepared(spool)
    upload = attach.begin(spool, msg_id, "letter")
    attach.end(spool, upload, attach.copy(spool.dir_fd, letter, upload))

    def closed():
        raise Closed("the queue is stopping")

    async def story():
        with ThreadPoolExecutor(1) as threads:
            queue = SimpleNamespace(
                spool=spool,
                loop=asyncio.get_running_loop(),
                pools=SimpleNamespace(files=threads),
                began_at=0.0,
                admission=SimpleNamespace(check_open=closed),
            )
            # It was open when the files began to be looked at.
            await create._commit_with_files(queue, msg_id, contextlib.ExitStack())

    with pytest.raises(Closed):
        asyncio.run(story())
    assert spool.find(msg_id) is State.PREP
