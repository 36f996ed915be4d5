"""The key of a hand-over is that of the message, however often it was tried."""

from pathlib import Path

import pytest

from rq.layout import Root
from rq.message.message import Message
from rq.relay import task

MESSAGE = Message(msg_id="20270115.0800.00.000.1", dest="http://h:1/q/x", due=0.0)


def of(message):
    return task.Task(Root(Path("/r")), Path("/r/queue/relay/run/x/job"), message, "f")


@pytest.mark.parametrize(
    "tried",
    [{"count": 3}, {"attempt": 4}, {"lost_attempts": 2}, {"due": 9.0}],
    ids=lambda fields: str(*fields),
)
def test_what_an_attempt_changes_makes_no_second_message_there(tried):
    again = of(MESSAGE.with_(**tried))
    assert task.key(again, "i", 0) == task.key(of(MESSAGE), "i", 0)
    assert not {"attempt", "lost_attempts", "due"} & task.travels(again).keys()
