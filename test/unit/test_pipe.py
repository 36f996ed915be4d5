"""What a script says, however its bytes arrive."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import BadInput
from rq.scripts import pipe
from rq.scripts.pipe import LINE_LIMIT, NAME_LIMIT, Dup, Lines, Report, Resend, Verb


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def lines_of(chunks):
    lines = Lines()
    fed = [line for chunk in chunks for line in lines.feed(chunk)]
    return fed + lines.end()


@given(st.binary(max_size=300), st.lists(st.integers(0, 1000), max_size=20))
def test_any_chunking_gives_the_same_lines(data, places):
    data = data.replace(b"\x01", b"\n")
    assert lines_of(cut(data, places)) == lines_of([data])
    assert b"\n".join(lines_of([data])) == data.removesuffix(b"\n")


@pytest.mark.parametrize("size", [1000, LINE_LIMIT, LINE_LIMIT + 1])
def test_an_endless_line_costs_no_more_than_its_limit(size):
    data = b"run " + b"x" * (3 * LINE_LIMIT) + b"\ndone ok\n"
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    first, second = lines_of(chunks)
    assert first == data[:LINE_LIMIT]
    assert second == b"done ok"


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (b"", None),
        (b"   ", None),
        (b"done", Report(Verb.DONE, "")),
        (b"done all good", Report(Verb.DONE, "all good")),
        (b"  done   all good  \r", Report(Verb.DONE, "all good")),
        (b"relayed http://h/q/x/1", Report(Verb.RELAYED, "http://h/q/x/1")),
        (b"err no disk", Report(Verb.ERR, "no disk")),
        (b"fail no disk", Report(Verb.ERR, "no disk")),
        (b"fails no disk", Report(Verb.ERR, "no disk")),
        (b"run half", Report(Verb.RUN, "half")),
        (b"resend 5-later", Report(Verb.RESEND, "5-later")),
        (b"dup 0-X-other", Report(Verb.DUP, "0-X-other")),
        (b"DONE x", Report(None, "DONE x")),
        (b"Done x", Report(None, "Done x")),
        (b"doneness", Report(None, "doneness")),
        (b"hello world", Report(None, "hello world")),
        (b"done \xff\xfe", Report(Verb.DONE, "\ufffd\ufffd")),
        (b"run a\0b", Report(Verb.RUN, "a\ufffdb")),
    ],
)
def test_a_line_is_a_report(line, report):
    assert pipe.parse(line) == report


@given(st.binary(max_size=100))
def test_no_line_can_hurt(line):
    report = pipe.parse(line)
    if report is not None:
        assert "\0" not in report.text


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("5-later", Resend(5.0, "later")),
        ("0-", Resend(0.0, "")),
        ("5", Resend(5.0, "")),
        ("5-a-b", Resend(5.0, "a-b")),
        (" 5 -x", Resend(5.0, "x")),
    ],
)
def test_resend_has_a_delay_and_a_reason(text, asked):
    assert pipe.parse_resend(text) == asked


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("5-a@b c", Resend(5.0, "a@b c")),
        ("5@http://a-b:1/q/c is off", Resend(5.0, "is off", "http://a-b:1/q/c")),
        ("0@x", Resend(0.0, "", "x")),
    ],
)
def test_later_may_name_what_it_waits_for(text, asked):
    assert pipe.parse_later(text) == asked


def test_the_name_of_what_is_waited_for_has_a_longest():
    name = "x" * (NAME_LIMIT - 2) + "é"
    assert pipe.parse_later(f"5@{name} shut").waits_for == name
    with pytest.raises(BadInput, match="4097 bytes, at most 4096"):
        pipe.parse_later(f"5@{name}x shut")


@pytest.mark.parametrize(
    "text", ["", "-", "abc", "-5-x", "1.5-x", "1e3-x", "9" * 11, "²-x"]
)
def test_a_resend_that_cannot_be_read_says_its_form(text):
    with pytest.raises(BadInput, match="resend SECONDS-REASON"):
        pipe.parse_resend(text)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("0-X-other", Dup(0.0, "other")),
        ("60-X-my-queue", Dup(60.0, "my-queue")),
        ("0--other", Dup(0.0, "other")),
        ("0-X-http://h:3333/q/a-b", Dup(0.0, "http://h:3333/q/a-b")),
    ],
)
def test_dup_has_a_delay_and_a_destination(text, asked):
    assert pipe.parse_dup(text) == asked


@pytest.mark.parametrize("text", ["", "0", "0-X", "0-X-", "x-X-q", "-1-X-q", "--q"])
def test_a_dup_that_cannot_be_read_says_its_form(text):
    with pytest.raises(BadInput, match="dup SECONDS-X-DEST"):
        pipe.parse_dup(text)


@given(st.booleans(), st.text())
def test_the_answer_to_dup_is_one_line(ok, text):
    reply = pipe.dup_reply(ok, text.encode(errors="ignore").decode())
    assert reply.count(b"\n") == 1
    assert reply.endswith(b"\n")
    assert reply.startswith(b"ok " if ok else b"fail ")
