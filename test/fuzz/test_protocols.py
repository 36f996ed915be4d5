"""Bytes of pipes, sockets and other hosts: read, or refused with the documented error."""

from __future__ import annotations

import contextlib
import itertools
import json

import pytest
from harness.hostile_values import as_json, json_value, mangled, odd_text
from hypothesis import example, given
from hypothesis import strategies as st

from rq import names
from rq.errors import BadInput
from rq.outbound.exchange import Reply
from rq.relay import answers
from rq.relay.two_phase import Answer
from rq.rpc import wire
from rq.scripts import pipe
from rq.scripts.pipe import LINE_LIMIT, Verb

FRAMES = wire.request("ping") + wire.request("get", b'{"a": 1}') + wire.frame(b"")
WORDS = st.sampled_from(
    [*map(str, Verb), *pipe.ALIASES, "DONE", "re\u017fend", "doneness"]
)


def chunks(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


places = st.lists(st.integers(0, 10**6), max_size=8)

# ---- pipe


@given(st.binary(max_size=200), places)
def test_a_pipe_gives_lines_of_bounded_size_for_any_bytes(data, places):
    lines = pipe.Lines()
    found = [line for one in chunks(data, places) for line in lines.feed(one)]
    found += lines.end()
    assert b"\n".join(found) == data.removesuffix(b"\n") or not data
    assert all(len(line) <= LINE_LIMIT and b"\n" not in line for line in found)


@given(
    st.one_of(
        st.binary(max_size=80), odd_text.map(lambda t: t.encode("utf-8", "replace"))
    )
)
def test_any_line_of_a_script_is_a_report_or_nothing(line):
    report = pipe.parse(line)
    assert report is None or "\0" not in report.text


@given(WORDS, odd_text)
def test_only_the_documented_words_are_verbs(word, text):
    report = pipe.parse(f"{word} {text}".encode("utf-8", "replace"))
    known = word in {*map(str, Verb), *pipe.ALIASES}
    assert report is not None
    assert (report.verb is not None) is known


@pytest.mark.parametrize(
    "read", [pipe.parse_resend, pipe.parse_dup, pipe.parse_forward]
)
@given(text=odd_text)
def test_what_follows_a_verb_is_read_or_refused(read, text):
    for form in (text, f"{text}-X-{text}", f"5-{text}", f"5-X-{text}"):
        with contextlib.suppress(BadInput):
            found = read(form)
            if not isinstance(found, str):
                assert 0 <= found.delay < 10**10


# ---- frames


@given(st.one_of(st.binary(max_size=100), mangled(FRAMES)), places)
def test_frames_are_the_same_however_they_are_cut(data, places):
    outcomes = []
    for parts in ([data], chunks(data, places)):
        frames, found = wire.Frames(limit=1000), []
        try:
            for part in parts:
                found += frames.feed(part)
        except BadInput:
            outcomes.append("refused")
        else:
            outcomes.append(found)
            assert len(b"".join(found)) <= len(data)
    assert outcomes[0] == outcomes[1]


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_frames_come_back_whole_and_split_into_word_and_argument(payloads):
    found = wire.Frames().feed(b"".join(map(wire.frame, payloads)))
    assert found == payloads
    for one in payloads:
        word, argument = wire.split_request(one)
        assert len(argument) <= len(one)
        assert " " not in word


# ---- names and ids


@pytest.mark.parametrize("check", [names.queue_name, names.msg_id, names.attachment])
@given(value=st.one_of(json_value, odd_text))
def test_a_name_is_taken_as_it_is_or_refused(check, value):
    with contextlib.suppress(BadInput):
        name = check(value)
        assert name == value.removeprefix(".")
        assert "/" not in name
        assert "\0" not in name
        assert name not in ("", ".", "..")
        assert len(name.encode()) <= 255


@given(st.one_of(odd_text, st.text("q/.:htp0123456789ab", max_size=40)))
def test_an_address_names_a_queue_and_perhaps_a_message_or_is_refused(text):
    with contextlib.suppress(BadInput):
        queue, msg_id = names.split_url(text)
        assert names.is_queue_name(queue)
        assert msg_id is None or names.is_msg_id(msg_id)


@given(st.from_regex(names.MSG_ID, fullmatch=True))
def test_any_id_has_a_time_though_it_be_no_date(text):
    assert names.created(text) <= 253402300800.0


# ---- what other hosts answer


replies = st.builds(
    Reply,
    status=st.sampled_from([200, 200, 200, 302, 400, 404, 409, 429, 500, 0]),
    body=st.one_of(
        st.binary(max_size=60),
        json_value.map(as_json),
        st.lists(json_value, max_size=3).map(lambda v: as_json(["ok", *v])),
        st.just(b"9" * 5000),
        st.just(json.dumps(["ok", "http://h/q/x/1", "prep"]).encode()),
    ),
)


@given(replies)
@example(Reply(200, b"[[]]"))
@example(Reply(200, b"[" * 5000))
def test_any_answer_of_another_host_means_something(reply):
    for read in (answers.prepared, answers.looked_up, answers.committed):
        assert isinstance(read(reply), Answer)
    assert isinstance(answers.attached(reply, "cafe"), Answer)
    assert isinstance(answers.progress(reply, "cafe"), Answer | int)
