"""What a queue says of a message that it cannot read just now: nothing."""

from types import SimpleNamespace

import pytest
from harness.limits import no_descriptors
from harness.spool import a_message

from rq.config.settings import QueueConfig
from rq.errors import Unread
from rq.queues.control import idempotency
from rq.queues.owner.backlog import Backlog
from rq.spool import lost_attempts
from rq.words.states import State


def test_a_message_that_cannot_be_read_now_is_not_said_to_exclude_nobody(owner):
    # It would run beside one that it must not meet.
    msg_id = owner.submit(param1="x")
    owner.apply()
    backlog = Backlog(owner.spool, QueueConfig(blocking_params=(1,)))
    with no_descriptors(), pytest.raises(Unread, match="Too many open files"):
        backlog.exclusion_key(msg_id)
    assert backlog.exclusion_key(msg_id) is not None


def test_a_prepared_message_that_cannot_be_read_now_is_not_said_to_have_no_key(
    owner,
):
    # Whoever asks again under its key would be given another message.
    msg_id = owner.spool.new_id()
    owner.spool.prepare(a_message(msg_id).with_(extra={idempotency.KEY: "k"}))
    owner.apply()
    asked = SimpleNamespace(spool=owner.spool)
    with no_descriptors(), pytest.raises(Unread, match="Too many open files"):
        idempotency.key_of(asked, msg_id)
    assert idempotency.key_of(asked, msg_id) == "k"


def test_a_message_that_is_malformed_goes_to_err_though_nobody_can_search_the_journal(
    owner, caplog
):
    # It had left the schedule, and would have waited for the next start.
    msg_id = owner.submit()
    owner.apply()
    with no_descriptors():
        lost_attempts.fail_malformed(owner.spool, msg_id, "torn")
    assert owner.spool.find(msg_id) is State.ERR
    assert f"what a message owes: msg_id={msg_id}" in caplog.text
