"""The keys of prepared messages: an owner remembers those that can still be committed."""

import asyncio
from types import SimpleNamespace

from harness.spool import a_message

from rq.queues.control import idempotency
from rq.queues.control.idempotency import Key, Preparer
from rq.words.states import Event, Role


def test_the_key_of_a_prepared_message_is_forgotten_when_that_was_removed(owner):
    spool = owner.spool
    queue = SimpleNamespace(
        spool=spool,
        prepared={},
        make=lambda request, is_new, by: a_message(spool.new_id(), **request),
        admission=SimpleNamespace(check_open=lambda: None),
    )
    asked = [
        idempotency.prepare_once(
            queue,
            queue.prepared,
            {"param1": key},
            Preparer("", True),
            Key(key, key, None),
        )
        for key in ("kept", "removed", "committed")
    ]
    kept, removed, committed = (msg_id for msg_id, _ in asked)
    spool.fire(removed, Event.DISCARD, Role.CREATOR)
    spool.submit(spool.read(committed))
    asyncio.run(idempotency.forget_removed(queue))
    assert queue.prepared == {"kept": kept}
