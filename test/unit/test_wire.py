"""Frames of the control sockets: any chunking, and nothing malformed."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import BadInput
from rq.rpc import wire
from rq.rpc.wire import FRAME_LIMIT, HEAD, MAGIC2, Frames


@given(
    st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0), max_size=12)
)
def test_any_chunking_gives_the_same_payloads(payloads, places):
    data = b"".join(wire.frame(one) for one in payloads)
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    frames, found = Frames(), []
    for start, end in itertools.pairwise(edges):
        found += frames.feed(data[start:end])
    assert found == payloads
    assert not frames.partial


def feed_singly(data):
    frames = Frames()
    for at in range(len(data)):
        frames.feed(data[at : at + 1])


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"rq2 00000004 ping",
        b"rq1 0000000x ping",
        b"rq1 -0000001 ping",
        b"rq1 +0000001 ping",
        b"rq1 00000004xping",
        b"rq100000004 ping!",
        b"rq1 99999999 ",
        b"rq1 " + b"%08d " % (FRAME_LIMIT + 1),
        b"\0" * HEAD,
        b"\n",
        b"rq1 \xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2 ",
    ],
)
def test_a_malformed_frame_is_refused_however_it_arrives(data):
    with pytest.raises(BadInput):
        Frames().feed(data)
    with pytest.raises(BadInput):
        feed_singly(data)


def test_good_frames_before_a_bad_one_do_not_hide_it():
    with pytest.raises(BadInput):
        Frames().feed(wire.frame(b"ping") + b"nonsense, and more of it")


def test_the_largest_frame_is_taken():
    assert Frames(limit=10).feed(wire.frame(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(BadInput, match="at most 10 bytes, not 11"):
        Frames(limit=10).feed(wire.frame(b"x" * 11))


def test_the_second_protocol_differs_in_its_magic_only():
    assert Frames(MAGIC2).feed(wire.frame(b"x", MAGIC2)) == [b"x"]
    with pytest.raises(BadInput):
        Frames(MAGIC2).feed(wire.frame(b"x"))


@pytest.mark.parametrize(
    ("payload", "asked"),
    [
        (b"ping", ("ping", b"")),
        (b"ping ", ("ping", b"")),
        (b'get {"a": 1}', ("get", b'{"a": 1}')),
        (b"\xff x", ("\ufffd", b"x")),
        (b"", ("", b"")),
    ],
)
def test_a_request_is_a_word_and_an_argument(payload, asked):
    assert wire.split_request(payload) == asked


def test_a_request_comes_back_as_it_was():
    (payload,) = Frames().feed(wire.request("status", b"{}"))
    assert wire.split_request(payload) == ("status", b"{}")
