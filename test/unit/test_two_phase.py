"""The table of the hand-over, cell by cell, and what replies mean."""

import itertools
import json

import pytest

from rq.outbound.exchange import Reply
from rq.relay import answers
from rq.relay.two_phase import ENDS, Answer, Heard, Step, Stored, next_step

NOTHING = Stored()
KEYED = Stored(remote="http://h/q/a/1", knows_keys=True)
OLD = Stored(remote="http://h/q/a/1")
FORGOTTEN = Stored(remote="http://h/q/a/1", knows_keys=True, forgotten=True)
TOLD = Stored(remote="http://h/q/a/1", committing=True)
ALL = [NOTHING, KEYED, OLD, TOLD, FORGOTTEN]


@pytest.mark.parametrize(
    ("stored", "step"),
    [
        (NOTHING, Step.PREPARE),
        (KEYED, Step.ASK),
        (OLD, Step.ASK),
        (TOLD, Step.ASK),
    ],
)
def test_a_retry_asks_before_it_sends(stored, step):
    assert next_step(stored, None) is step


@pytest.mark.parametrize("stored", ALL)
@pytest.mark.parametrize(
    ("heard", "step"),
    [
        (Heard.PREP, Step.ATTACH),
        (Heard.WHOLE, Step.COMMIT),
        (Heard.COMMITTED, Step.RELAYED),
        (Heard.DAMAGED, Step.ATTACH),
        (Heard.REFUSED, Step.ERR),
        (Heard.SILENT, Step.LATER),
    ],
)
def test_what_was_heard_decides(stored, heard, step):
    assert next_step(stored, Answer(heard)) is step


@pytest.mark.parametrize("stored", [NOTHING, KEYED, OLD])
def test_a_message_that_is_not_there_is_prepared_anew(stored):
    assert next_step(stored, Answer(Heard.UNKNOWN)) is Step.PREPARE


@pytest.mark.parametrize("stored", [TOLD, FORGOTTEN])
def test_what_may_have_been_committed_and_is_gone_is_in_doubt(stored):
    assert next_step(stored, Answer(Heard.UNKNOWN)) is Step.DOUBT


def test_no_answer_is_without_a_next_step_and_silence_never_ends_a_message():
    for stored, heard in itertools.product(ALL, Heard):
        step = next_step(stored, Answer(heard))
        assert (step is Step.RELAYED) == (heard is Heard.COMMITTED)
        assert (step in ENDS - {Step.RELAYED, Step.LATER}) <= (
            heard in (Heard.REFUSED, Heard.UNKNOWN)
        )


# ---- replies


def reply(said, status=200):
    return Reply(status, json.dumps(said).encode())


ID = "http://h:1/q/a/20260102.0304.05.006.7"


@pytest.mark.parametrize(
    ("said", "heard", "keyed"),
    [
        (["ok", ID], Heard.PREP, False),
        (["ok", ID, "prep"], Heard.PREP, True),
        (["ok", ID, "commited"], Heard.COMMITTED, True),
    ],
)
def test_a_third_element_tells_a_receiver_that_knows_keys(said, heard, keyed):
    answer = answers.prepared(reply(said))
    assert (answer.heard, answer.remote, answer.knows_keys) == (heard, ID, keyed)


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("status: DOWN", Heard.SILENT),
        ("not accepted: no space", Heard.SILENT),
        ("outcome unknown: x", Heard.SILENT),
        ("message 1 is being worked on; ask again", Heard.SILENT),
        ("cannot find message", Heard.UNKNOWN),
        ("msg not found: 1", Heard.UNKNOWN),
        ("msg couldn't be read: torn", Heard.UNKNOWN),
        ("msg couldn't be read: Too many open files", Heard.SILENT),
        ("msg couldn't be read: Too many open files in system", Heard.SILENT),
        ("msg couldn't be read: Cannot allocate memory", Heard.SILENT),
        ("msg already commited", Heard.COMMITTED),
        ("attachment a is not whole; attach it again", Heard.DAMAGED),
        ("attachments are not on disk: EIO", Heard.DAMAGED),
        ("param1 is too large", Heard.REFUSED),
    ],
)
def test_the_text_of_a_refusal_tells_its_kind(text, heard):
    assert answers.committed(reply(["fail", text])).heard is heard
    assert answers.prepared(reply(["fail", text])).heard is heard
    assert answers.attached(reply([False, text]), "x").heard is heard


@pytest.mark.parametrize(
    ("status", "heard"),
    [
        (301, Heard.REFUSED),
        (401, Heard.REFUSED),
        (403, Heard.REFUSED),
        (413, Heard.REFUSED),
        (422, Heard.REFUSED),
        (408, Heard.SILENT),
        (429, Heard.SILENT),
        (500, Heard.SILENT),
        (502, Heard.SILENT),
        (503, Heard.SILENT),
        (504, Heard.SILENT),
        (404, Heard.UNKNOWN),
    ],
)
def test_a_status_that_is_not_200_tells_its_kind(status, heard):
    gone = Reply(status, b'{"detail": "there is no queue a"}')
    assert answers.committed(gone).heard is heard
    assert answers.looked_up(gone).heard is heard
    assert answers.attached(gone, "x").heard is heard
    assert answers.committed(gone).text.startswith(f"{status} ")
    assert answers.committed(gone).text.endswith(": there is no queue a")
    first = Heard.REFUSED if status == 404 else heard
    assert answers.prepared(gone).heard is first


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"{}", b"[]", b"<html>", b"\xff[", b"7", b'["fail", "\\ud800"]'],
)
def test_an_answer_that_is_none_is_no_answer(body):
    for heard in (
        answers.prepared(Reply(200, body)),
        answers.committed(Reply(200, body)),
        answers.looked_up(Reply(200, body)),
        answers.attached(Reply(200, body), "x"),
    ):
        assert heard.heard is Heard.SILENT


@pytest.mark.parametrize("state", ["que", "run", "done", "relayed", "err"])
def test_every_state_past_prep_is_committed(state):
    assert answers.looked_up(reply([state])).heard is Heard.COMMITTED
    assert answers.looked_up(reply(["prep"])).heard is Heard.PREP


def test_an_upload_counts_only_with_its_own_digest():
    right = reply(["ok", "abc-Attached successfully"])
    assert answers.attached(right, "abc").heard is Heard.WHOLE
    assert answers.attached(right, "abe").heard is Heard.SILENT


def test_so_many_bytes_have_come_as_a_number_can_say():
    assert answers.progress(reply(["ok", 5 * 2**30]), "abc") == 5 * 2**30
    for have in (-1, True, 1.5, "5", None):
        answer = answers.progress(reply(["ok", have]), "abc")
        assert isinstance(answer, answers.Answer)
        assert answer.heard is Heard.SILENT


SECRET = "root:x:0:0"


@pytest.mark.parametrize(
    "said",
    [
        [SECRET],
        ["fail", SECRET],
        ["ok", SECRET],
        ["ok", f"http://h/{SECRET}"],
        ["ok", f"{ID}/{SECRET}"],
        ["ok", f"http://h/{SECRET} /q/a/20260102.0304.05.006.7"],
        ["ok", ID, "prep", "status: ", SECRET],
        ["status: ", SECRET],
        ["x", "status: DOWN", f"msg {SECRET}"],
        {"detail": SECRET, "title": SECRET},
        SECRET,
    ],
)
def test_nothing_of_an_answer_is_shown_but_sentences_of_rq(said):
    for status in (200, 301, 403, 404, 500):
        there = reply(said, status)
        for answer in (
            answers.prepared(there),
            answers.looked_up(there),
            answers.committed(there),
            answers.attached(there, "md5"),
            answers.progress(there, "md5"),
        ):
            assert SECRET not in repr(answer), status


def test_a_body_that_is_no_json_is_not_shown_either():
    for status in (200, 400, 502):
        there = Reply(status, SECRET.encode())
        assert SECRET not in answers.prepared(there).text
        assert SECRET not in answers.committed(there).text


@pytest.mark.parametrize(
    "text",
    [
        "there is no queue nobody",
        "param1 is 200000 bytes, an environment variable holds 131050; send it as an "
        "attachment",
        "the message is 2000000 bytes of JSON, at most 1044480 can be taken",
        "status: DOWN",
    ],
)
def test_a_sentence_of_rq_is_shown(text):
    assert answers.prepared(reply(["fail", text])).text == text
    shown = answers.prepared(reply({"title": "Bad", "detail": text}, 422)).text
    assert shown.endswith(f": {text}")
