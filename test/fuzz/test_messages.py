"""Message files and requests: a message that can be kept, or BadMessage."""

from __future__ import annotations

import contextlib

import orjson
from harness.hostile_values import as_json, json_value, mangled, near
from hypothesis import example, given
from hypothesis import strategies as st

from rq.errors import BadMessage
from rq.message import message
from rq.message.fields import param_text

NOW, ORIGIN = 1_800_000_000.0, "http://h:1/q/q/x"
MSG_ID = "20270115.0800.00.000.1"
GOOD = {
    "dest": "q",
    "due": 1.5,
    "src": "me",
    "count": 1,
    "max_count": 15,
    "attempt": 2,
    "lost_attempts": 1,
    "param1": "one",
    "param2": {"a": [1]},
    "post_run_webhook": ["http://h/x"],
    "orig_msg_id": ORIGIN,
    "force_remote": True,
    "cloned_from": "x",
    "dup": "y",
    "dups": ["z"],
    "attachments": {"a.txt": {"sha256": "0", "md5": "0", "size": 1}},
    "own": {"deep": [None, 1.5]},
}


def kept(found):
    """A message comes back from disk as it was, and can be a file and an environment."""
    data = found.encode()
    assert message.from_disk(data, MSG_ID, NOW).encode() == data
    for value in found.params.values():
        assert "\0" not in param_text(value)
    return data


@given(near(GOOD))
def test_a_request_is_a_message_or_refused(fields):
    try:
        fields = orjson.loads(orjson.dumps(fields))  # as it comes over a socket
    except TypeError:
        return
    with contextlib.suppress(BadMessage):
        kept(message.from_request(fields, MSG_ID, NOW, ORIGIN))


@given(json_value)
def test_what_is_no_object_is_no_request(value):
    with contextlib.suppress(BadMessage):
        message.from_request(value, MSG_ID, NOW, ORIGIN)


@given(
    st.one_of(
        mangled(as_json(GOOD)),
        near(GOOD).map(as_json),
        st.binary(max_size=60),
        json_value.map(as_json),
        st.sampled_from([b"[" * 10**6, b'{"a":' * 10**5, b"9" * 10**5, b"\0" * 9999]),
    )
)
def test_any_msg_file_is_a_message_or_refused(data):
    with contextlib.suppress(BadMessage):
        kept(message.from_disk(data, MSG_ID, NOW))


@given(st.integers(0, 2**31 - 1), st.integers(0, 40))
@example(1, 12)
def test_a_number_as_text_means_that_number(number, zeros):
    asked = {"dest": "q", "max_count": "0" * zeros + str(number)}
    found = message.from_request(asked, MSG_ID, NOW, ORIGIN)
    assert found.max_count == number
