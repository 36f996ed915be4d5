"""What nodes send each other, as bytes: whole, checked, and made by nobody else."""

from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.broker.bus import outbox
from rq.broker.bus.codec import decode, encode
from rq.broker.bus.frames import MAGIC, PIECE, BadFrame, Opener, Sealer, keys, nonce_in
from rq.broker.bus.outbox import Outbox
from rq.broker.cluster import messages
from rq.broker.cluster.gossip import Address, Greeting, HasFailed, Kind, Rumour
from rq.broker.state.bounds import MOST_NUMBER
from rq.broker.state.ids import job_id

NODES = st.binary(min_size=20, max_size=20).map(bytes.hex)
JOBS = st.binary(min_size=18, max_size=18).map(lambda b: job_id("ab" * 20, b, 90, 1))
SECONDS = st.floats(0, 1e9)
NUMBERS = st.integers(0, 2**62)
NAMES = st.binary(max_size=40)
COPIES = st.builds(
    messages.Copy,
    JOBS,
    NAMES,
    st.binary(max_size=300),
    NUMBERS,
    SECONDS,
    SECONDS,
    SECONDS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.lists(NODES, max_size=4).map(tuple),
    NUMBERS,
)
HOSTS = st.sampled_from(["", "10.0.0.1", "::1", "2001:db8::1"])
PORTS = st.integers(0, 65535)
ADDRESSES = st.builds(Address, HOSTS, PORTS, PORTS)
RUMOURS = st.builds(Rumour, NODES, ADDRESSES, st.booleans(), st.booleans())
FIELDS = {
    messages.Replicate: (COPIES, st.booleans()),
    messages.Kept: (JOBS,),
    messages.Enqueue: (JOBS, SECONDS),
    messages.WillQueue: (JOBS,),
    messages.IsQueued: (JOBS, NUMBERS, NUMBERS),
    messages.Working: (JOBS,),
    messages.SetAck: (JOBS, st.lists(NODES, max_size=3).map(tuple)),
    messages.GotAck: (JOBS, st.booleans()),
    messages.Delete: (JOBS,),
    messages.Need: (NAMES, NUMBERS),
    messages.Yours: (st.lists(COPIES, max_size=3).map(tuple),),
    messages.Pause: (NAMES, st.booleans(), st.booleans()),
    messages.Mark: (),
    Greeting: (
        st.sampled_from(Kind),
        PORTS,
        PORTS,
        st.booleans(),
        st.lists(RUMOURS, max_size=3).map(tuple),
        NUMBERS,
        NUMBERS,
    ),
    HasFailed: (NODES,),
}
MESSAGES = st.one_of(*(st.builds(kind, *of) for kind, of in FIELDS.items()))


@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message):
    assert decode(encode(message)) == message


def test_each_message_has_its_bytes():
    assert set(FIELDS) == {*get_args(messages.Message), Greeting, HasFailed}


@given(st.binary(max_size=400))
def test_garbage_is_refused_or_a_message(data):
    try:
        message = decode(data)
    except BadFrame:
        return
    assert encode(message) == data or data[:1] == b"\x14"  # hosts are written anew


@given(MESSAGES, st.data())
def test_a_message_that_is_cut_or_longer_is_refused(message, data):
    whole = encode(message)
    for wrong in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"\0"):
        with pytest.raises(BadFrame):
            decode(wrong)


@pytest.mark.parametrize(
    "seconds", [b"\x7f\xf8" + bytes(6), b"\x7f\xf0" + bytes(6), b"\xbf\xf0" + bytes(6)]
)
def test_seconds_that_nobody_counts_are_refused(seconds):
    message = encode(messages.Enqueue(job_id("ab" * 20, bytes(18), 60, 1), 0.0))
    with pytest.raises(BadFrame):
        decode(message[:-8] + seconds)


@pytest.mark.parametrize("kind", [messages.IsQueued, messages.Need])
def test_numbers_to_which_nothing_can_be_added_are_refused(kind):
    job = job_id("ab" * 20, bytes(18), 60, 1)
    message = kind(job, 0, 0) if kind is messages.IsQueued else kind(b"q", 0)
    whole = encode(message)
    assert decode(whole) == message
    for number in (MOST_NUMBER + 1, 2**63 - 1, -1):
        with pytest.raises(BadFrame):
            decode(whole[:-8] + number.to_bytes(8, "big", signed=True))


@pytest.mark.parametrize("field", ["ctime", "wanted", "nacks", "deliveries", "moves"])
def test_figures_of_a_job_to_which_nothing_can_be_added_are_refused(field):
    job = job_id("ab" * 20, bytes(18), 60, 1)
    copy = messages.Copy(job, b"q", b"b", 1, 2.0, 3.0, 4.0, 5, 6, 7, (), 8)
    with pytest.raises(BadFrame):
        decode(encode(messages.Replicate(copy._replace(**{field: 2**63 - 1}), False)))


# ---- frames


def _pair(secret=b"s" * 16, other=b"s" * 16):
    """Return the sealer of whoever connects, and the opener of the other side."""
    ours, _ = keys(secret, b"c" * 32, b"a" * 32)
    theirs, _ = keys(other, b"c" * 32, b"a" * 32)
    return Sealer(ours), Opener(theirs)


def _opened(opener, data):
    opener.feed(data)
    return list(iter(opener.next, None))


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=5), st.integers(1, 50))
def test_payloads_come_in_their_order_however_they_are_cut(payloads, size):
    sealer, opener = _pair()
    stream = b"".join(map(sealer.seal, payloads))
    got = []
    for start in range(0, len(stream), size):
        got += _opened(opener, stream[start : start + size])
    assert got == payloads


def _refused(opener, data):
    with pytest.raises(BadFrame):
        _opened(opener, data)


def test_a_frame_sent_twice_is_refused():
    sealer, opener = _pair()
    frame = sealer.seal(b"x")
    assert _opened(opener, frame) == [b"x"]
    _refused(opener, frame)


def test_a_frame_left_out_is_noticed():
    sealer, opener = _pair()
    sealer.seal(b"first")
    _refused(opener, sealer.seal(b"second"))


def test_a_frame_sent_back_is_refused():
    ours, theirs = keys(b"s" * 16, b"c" * 32, b"a" * 32)
    _refused(Opener(theirs), Sealer(ours).seal(b"x"))


def test_a_frame_of_another_connection_is_refused():
    ours, _ = keys(b"s" * 16, b"c" * 32, b"a" * 32)
    later, _ = keys(b"s" * 16, b"c" * 32, b"b" * 32)
    _refused(Opener(later), Sealer(ours).seal(b"x"))


def test_a_frame_of_another_secret_is_refused():
    sealer, opener = _pair(other=b"t" * 16)
    _refused(opener, sealer.seal(b"x"))


@given(st.integers(0, 1000), st.integers(1, 255))
def test_a_frame_with_a_bit_changed_is_refused(place, by):
    sealer, opener = _pair()
    frame = bytearray(sealer.seal(b"some payload"))
    frame[place % len(frame)] ^= by
    try:
        assert _opened(opener, bytes(frame)) == []  # a length that is longer
    except BadFrame:
        return
    _refused(opener, bytes(PIECE))


@pytest.mark.parametrize("size", [0, PIECE + 1, 2**32 - 1])
def test_a_length_that_cannot_be_is_refused_before_it_is_read(size):
    _, opener = _pair()
    _refused(opener, size.to_bytes(4, "big"))


def test_a_connection_begins_as_a_node_does():
    assert nonce_in(MAGIC + b"n" * 32) == b"n" * 32
    for wrong in (b"GET / HTTP/1.1\r\n" + bytes(24), MAGIC + b"n" * 31):
        with pytest.raises(BadFrame):
            nonce_in(wrong)


# ---- what waits to be sent


def test_a_long_message_goes_in_pieces_and_urgent_ones_between():
    box, body = Outbox(), Random(1).randbytes(3 * PIECE)
    box.put(body)
    first = box.next()
    box.put(b"ping", urgent=True)
    assert box.next() == outbox.WHOLE + b"ping"
    rest = list(iter(box.next, None))
    assert [each[:1] for each in (first, *rest)] == [outbox.MORE] * 3 + [outbox.LAST]
    assert b"".join(each[1:] for each in (first, *rest)) == body
    assert all(len(each) <= PIECE for each in (first, *rest))
    assert box.bytes == 0


def test_what_waits_is_bounded_in_bytes_and_messages():
    box = Outbox()
    for _ in range(5):
        box.put(bytes(outbox.MOST_BYTES // 4))
    assert (box.lost, box.bytes) == (1, outbox.MOST_BYTES)
    box = Outbox()
    for _ in range(2000):
        box.put(b"p", urgent=True)
    assert (box.lost, len(box)) == (1000, 1000)
