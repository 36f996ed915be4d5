"""The pure parts of the bridge between clients of the broker and RQ's queues."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.broker.bridge import body, ids
from rq.broker.bridge.holdings import MOST, Held, Tokens
from rq.broker.dialects.call import Refusal
from rq.errors import BadInput

NODE = "0123456789abcdef" * 2 + "01234567"
MILLIS = st.integers(0, 7_258_118_400_000)  # up to the year 2200
NUMBERS = st.integers(0, 10**20 - 1)
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,20}", fullmatch=True)


@st.composite
def msg_ids(draw):
    millis = draw(MILLIS)
    when = datetime.fromtimestamp(millis // 1000, UTC)
    return f"{when:%Y%m%d.%H%M.%S}.{millis % 1000:03d}.{draw(NUMBERS)}"


@given(NAMES, msg_ids())
def test_an_id_tells_of_its_queue_and_its_message(queue, msg_id):
    digest = ids.digest(queue)
    job_id = ids.job_id(NODE, digest, msg_id)
    assert len(job_id) == 40
    assert ids.parsed(job_id.encode()) == (digest, msg_id)
    for between in "-_":
        pair = ids.pair(msg_id, between)
        assert ids.of_pair(pair.encode(), between.encode()) == msg_id


@given(st.binary(max_size=60))
def test_what_is_no_id_is_of_no_message(data):
    assert ids.of_pair(data, b"-") is None or data.count(b"-") == 1
    assert ids.parsed(data) is None


@given(st.binary(min_size=24, max_size=24))
def test_any_id_of_the_form_is_read(middle):
    ids.parsed(b"D-01234567-" + middle + b"-ffff")


@pytest.mark.parametrize(
    "msg_id",
    [
        "20260102.0304.05.006.07",
        "20261302.0304.05.006.7",
        "99991231.2359.59.999.7",
        "00000000.0000.00.000.7",
    ],
)
def test_an_id_that_no_client_could_say_is_refused(msg_id):
    assert not ids.is_sayable(msg_id)
    with pytest.raises(BadInput):
        ids.pair(msg_id, "-")


@given(st.text(max_size=50).filter(lambda text: not text.lstrip().startswith("{")))
def test_a_text_comes_back_as_it_went(text):
    assert body.body_of(body.fields_of(text.encode())) == text.encode()


@given(
    st.dictionaries(
        st.sampled_from(["param1", "param2", "to", "x_y"]),
        st.text(max_size=9) | st.integers(0, 9),
        min_size=2,
    )
)
def test_fields_come_back_as_they_went(fields):
    sent = body.fields_of(body.body_of(fields))
    assert sent == fields


def test_what_a_producer_says_of_the_lease_is_no_part_of_the_body():
    assert body.body_of({"param1": "a", body.LEASE_SECONDS: 7, "dest": "q"}) == b"a"
    assert body.body_of({}) == b""
    with pytest.raises(Refusal):
        body.fields_of(b"\xff")


def test_tokens_are_forgotten_when_their_leases_are_long_over():
    tokens = Tokens()
    for number in range(1000):
        tokens.keep(("u", 1, str(number)), Held("t", "q", 30.0))
    tokens.keep(("u", 1, "0"), Held("t", "q", 500.0))
    assert tokens.room(60.0) == MOST - 1000
    assert tokens.room(95.0) == MOST - 1
    assert tokens.of(("u", 1, "0")) is not None
    assert tokens.room(600.0) == MOST


def test_tokens_take_no_memory_once_they_are_dropped():
    tokens = Tokens()
    for number in range(10_000):
        tokens.keep(("u", 1, str(number)), Held("t", "q", 30.0))
        tokens.drop(("u", 1, str(number)))
    assert len(tokens._ends) < 200
    assert len(tokens) == 0
