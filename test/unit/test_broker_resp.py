"""The Redis protocol: bytes to commands, values to bytes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.resp import (
    BULK_LIMIT,
    NIL_ARRAY,
    Failure,
    Parser,
    ProtocolError,
    Status,
    TooLarge,
)
from rq.resp.encoding import encode

WORDS = st.lists(st.binary(max_size=40), min_size=1, max_size=6)


def _encoded(words):
    return encode(words, 2)


def _commands(*pieces):
    parser, found = Parser(), []
    for piece in pieces:
        parser.feed(piece)
        found += iter(parser.next, None)
    return found


@given(st.lists(WORDS, max_size=5), st.data())
def test_commands_come_whole_however_their_bytes_are_cut(commands, data):
    stream = b"".join(map(_encoded, commands))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    assert _commands(*pieces) == commands


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_no_bytes_make_the_parser_fail_otherwise_than_it_says(pieces):
    parser = Parser()
    try:
        for piece in pieces:
            parser.feed(piece)
            assert all(iter(parser.next, None))
    except ProtocolError:
        pass


PIECES = st.one_of(
    WORDS.map(_encoded),
    st.sampled_from([b"*2\r\n$4\r\n\r\n\r\n\r\n$1\r\nx\r\n", b"PING x\r\n", b"*0\r\n"]),
    st.sampled_from(
        [b"*01\r\n$01\r\nx\r\n", b"*1\r\n$2\r\nabc\r\n", b"\r\n", b"*+1\r\n"]
    ),
    st.text("*$\r\n01x ", max_size=9).map(str.encode),
)


def _read(pieces):
    """Return the commands in pieces of a stream, and why it ends."""
    parser, commands = Parser(), []
    try:
        for piece in pieces:
            parser.feed(piece)
            while (command := parser.next()) is not None:
                commands.append(command)
    except ProtocolError as error:
        return commands, str(error)
    return commands, parser.held


@given(st.lists(PIECES, max_size=8).map(b"".join))
def test_what_comes_at_once_is_read_as_what_comes_byte_by_byte(stream):
    assert _read([stream]) == _read([bytes([byte]) for byte in stream])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"PING\r\n\n", [[b"PING"]]),
        (b"  \t \n\r\n*0\r\n*-1\r\nPING x\n", [[b"PING", b"x"]]),
        (
            rb'ADDJOB "a b" "\x00\n\"" ' + b"'it\\'s'\n",
            [[b"ADDJOB", b"a b", b'\0\n"', b"it's"]],
        ),
        (b'A ""\n', [[b"A", b""]]),
    ],
)
def test_a_person_may_type_commands(line, words):
    assert _commands(line) == words


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*" + b"1" * 70_000, "too big mbulk count string"),
        (b"*1\r\n" + b"1" * 70_000, "too big bulk count string"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999\r\n", "invalid bulk length"),
        (b"x" * 70_000, "too big inline request"),
        (b'A "b\n', "unbalanced quotes in request"),
        (b'A "b"c\n', "unbalanced quotes in request"),
    ],
)
def test_what_is_no_command_is_refused_in_the_words_of_the_protocol(data, why):
    with pytest.raises(ProtocolError, match="^" + why.replace("$", r"\$")):
        _commands(data)


def test_a_body_that_is_too_large_is_read_to_its_end_and_dropped():
    parser, piece = Parser(), bytes(1024 * 1024)
    parser.feed(b"*3\r\n$4\r\nECHO\r\n$%d\r\n" % (BULK_LIMIT + 1))
    for _ in range(64):
        parser.feed(piece)
        assert parser.next() is None
        assert len(parser._data) < 2 * len(piece)
    parser.feed(b"x\r\n$1\r\ny\r\n*1\r\n$4\r\nPING\r\n")
    with pytest.raises(TooLarge, match=f"at most {BULK_LIMIT} bytes"):
        parser.next()
    assert parser.next() == [b"PING"]
    assert parser.held == 0


def test_what_comes_before_what_is_no_command_is_obeyed():
    parser, found = Parser(), []
    parser.feed(b"PING\r\n*x\r\n")
    with contextlib.suppress(ProtocolError):
        found.extend(iter(parser.next, None))
    assert found == [[b"PING"]]


@pytest.mark.parametrize(
    ("value", "two", "three"),
    [
        (Status("OK"), b"+OK\r\n", b"+OK\r\n"),
        (Failure("ERR a\r\nb"), b"-ERR a  b\r\n", b"-ERR a  b\r\n"),
        (None, b"$-1\r\n", b"_\r\n"),
        (NIL_ARRAY, b"*-1\r\n", b"_\r\n"),
        (-3, b":-3\r\n", b":-3\r\n"),
        (
            [b"", "ä"],
            b"*2\r\n$0\r\n\r\n$2\r\n\xc3\xa4\r\n",
            b"*2\r\n$0\r\n\r\n$2\r\n\xc3\xa4\r\n",
        ),
        ({"a": 1}, b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
        ([], b"*0\r\n", b"*0\r\n"),
    ],
)
def test_each_value_has_its_bytes(value, two, three):
    assert encode(value, 2) == two
    assert encode(value, 3) == three
