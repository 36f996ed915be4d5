"""The file `status` of a message, which scripts of RQ's user can write: RQ believes of it
what it could have written itself."""

import orjson
import pytest

from rq.layout import STATUS
from rq.spool import folders
from rq.words.states import Event, State

WHOLE = {
    "job_status": "no such host",
    "cause": "said_err",
    "exit": 0,
    "signal": "SIGKILL",
    "attempt": 3,
    "count": 2,
    "wait_us": 0,
    "run_us": 2**62,
    "cpu_us": 1,
    "max_rss": 25_000,
    "outcome": "err",
    "batch": "20270115.0800.00.000.1",
    "finished": 1_800_000_000.25,
}
WRONG = {
    "another type": {name: {"a": []} for name in WHOLE},
    "text for numbers": {name: "1" for name in WHOLE if isinstance(WHOLE[name], int)},
    "truth for numbers": {name: True for name in WHOLE if isinstance(WHOLE[name], int)},
    "below nothing": {name: -1 for name in WHOLE if isinstance(WHOLE[name], int)},
    "beyond all": {"attempt": 2**31, "count": 2**31, "run_us": 2**63, "finished": 1e99},
    "facts of no file": {"waiting": "x", "held": "x", "messages": 1},
    "not an object": [],
}


@pytest.fixture
def failed(owner):
    """A message in err."""
    msg_id = owner.submit()
    owner.spool.claim(msg_id, 0)
    owner.end(msg_id, Event.FAIL)
    owner.apply()
    return msg_id


def write(owner, msg_id, status):
    place = owner.queue.message(State.ERR, msg_id) / STATUS
    place.write_bytes(orjson.dumps(status))


def test_what_rq_writes_is_read_back(owner, failed):
    write(owner, failed, WHOLE)
    assert owner.spool.status(failed) == WHOLE
    assert folders.read_status(owner.queue, State.ERR, failed) == WHOLE


@pytest.mark.parametrize("what", WRONG)
def test_what_rq_could_not_have_written_is_left_out(owner, failed, what):
    write(owner, failed, WRONG[what])
    assert owner.spool.status(failed) == {}
