"""Where a view of a log begins: a piece and those before it are the file, and no half of it."""

from hypothesis import given
from hypothesis import strategies as st

from rq.web.livelog import line_start, unfinished

PARTS = ["a", "\n", "\r", "\r\n", "\u00fc", "\u0645\u200c", "\U0001f600", "lines "]


@given(st.lists(st.sampled_from(PARTS)), st.integers(0, 60))
def test_a_view_begins_with_a_whole_character_and_with_a_line_if_one_begins(parts, at):
    data = "".join(parts).encode()
    piece = data[min(at, len(data)) :]
    start = line_start(piece)
    begin = len(data) - len(piece) + start
    assert (data[:begin].decode() + data[begin:].decode()).encode() == data
    if b"\n" in piece[:-1]:
        assert data[begin - 1 : begin] == b"\n"
    assert start < len(piece) or not piece.strip(b"\x80\x98\x9f\xbc\x85\x8c")


@given(st.binary(max_size=40), st.integers(1, 7))
def test_bytes_that_are_cut_where_characters_end_are_the_same_text(data, size):
    text, at = "", 0
    while at < len(data):
        piece = data[at : at + size + 3]
        if at + len(piece) < len(data):
            piece = piece[: len(piece) - unfinished(piece)] or piece
        text += piece.decode("utf-8", "replace")
        at += len(piece)
    assert text == data.decode("utf-8", "replace")
