"""What the holder of a lease may say of its end, and what is refused in one sentence."""

import base64

import pytest

from rq.errors import BadInput, TooLarge
from rq.message import limits
from rq.queues.leases import said as of
from rq.queues.leases.said import Dup, finish
from rq.scripts.pipe import LINE_LIMIT, NAME_LIMIT, Verb

BOUNDS = [
    *(("exit", 0, 255), ("run_us", 0, 2**53), ("cpu_us", 0, 2**53)),
    ("max_rss", 0, 2**53),
]


def test_a_word_alone_says_all():
    end = finish({"word": "done"})
    assert (end.said.word, end.said.text, end.said.delay) == (Verb.DONE, "", 0.0)
    assert (end.exit, end.signal, end.run_us, end.cpu_us) == (None, None, None, None)
    assert (end.max_rss, end.dups, end.files, end.printed) == (None, (), {}, "")
    assert (end.said.over, end.said.result, end.said.unreadable) == (None, None, None)


@pytest.mark.parametrize(
    ("request_", "exit_", "signal"),
    [
        ({"exit": 0}, 0, None),
        ({"exit": 3}, 3, None),
        ({"signal": "SIGKILL"}, None, "SIGKILL"),
        ({"signal": "SIGKILL", "exit": 3}, None, "SIGKILL"),
    ],
)
def test_who_says_no_word_says_how_its_script_ended(request_, exit_, signal):
    end = finish(request_)
    assert (end.said.word, end.exit, end.signal) == (None, exit_, signal)


@pytest.mark.parametrize(("name", "least", "most"), BOUNDS)
def test_numbers_have_bounds(name, least, most):
    for number in (least, most):
        assert getattr(finish({"word": "done", name: number}), name) == number
    for number in (least - 1, most + 1):
        with pytest.raises(BadInput, match=f"^{name} is "):
            finish({"word": "done", name: number})


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({}, "word is missing; say one of done"),
        ({"word": "relayed"}, "relayed is a word of relays alone"),
        ({"word": "well"}, "word is 'well'; say one of done, err"),
        ({"word": "done", "delay": -1}, "delay is -1, and not between"),
        ({"word": "done", "delay": of.MOST_SECONDS + 1}, "delay is 1"),
        ({"word": "done", "text": 3}, "text is 3, and not a text"),
        ({"word": "done", "over": "nothing"}, "over is 'nothing'; say one of"),
        ({"word": "done", "over": "exit"}, "over is 'exit'; say one of"),
        ({"word": "forward"}, "dest is None; name a queue"),
        ({"word": "forward", "dest": ""}, "dest is ''; name a queue"),
        ({"word": "forward", "dest": "a b"}, "dest is 'a b'; name a queue"),
        ({"word": "later", "waits_for": ""}, "waits_for is '', and not a printable"),
        ({"word": "later", "waits_for": "a\n"}, "waits_for is 'a.n', and not a pri"),
        ({"word": "later", "waits_for": "é" * 2049}, "waits_for is .*, and not a pri"),
        ({"word": "done", "dups": "a"}, "dups is no list of at most 100 copies"),
        ({"word": "done", "dups": [{"dest": "a"}] * 101}, "dups is no list of at mo"),
        ({"word": "done", "dups": ["a"]}, "a copy in dups is an object"),
        ({"word": "done", "dups": [{}]}, "dest is None; name a queue"),
        ({"word": "done", "dups": [{"dest": "a", "delay": -1}]}, "delay is -1"),
        ({"word": "done", "files": ["a"]}, "files is an object of names"),
        ({"word": "done", "files": {"../a": "0"}}, "a"),
    ],
)
def test_what_makes_no_sense_is_refused(request_, why):
    with pytest.raises(BadInput, match=why):
        finish(request_)


def test_what_goes_with_a_word_is_taken_with_it_alone():
    later = finish({"word": "later", "delay": of.MOST_SECONDS, "waits_for": "é" * 2048})
    assert later.said.delay == of.MOST_SECONDS
    assert len(later.said.waits_for.encode()) == NAME_LIMIT
    assert finish({"word": "err", "waits_for": "x"}).said.waits_for is None
    forward = finish({"word": "forward", "dest": "b", "text": "own"})
    assert (forward.said.dest, forward.said.text) == ("b", "forwarded to b")
    assert finish({"word": "done", "dest": "b", "text": "own"}).said.dest is None
    copies = [{"dest": "b"}, {"dest": "c", "delay": 2}] * 50
    assert (
        finish({"word": "done", "dups": copies}).dups
        == (
            Dup("b", 0.0),
            Dup("c", 2.0),
        )
        * 50
    )
    assert finish({"word": "done", "files": {"a": "12"}}).files == {"a": "12"}


def test_a_script_that_was_ended_over_a_limit_says_over_which():
    (name, *_) = limits.OVER
    over = finish({"exit": 1, "over": name}).said.over
    assert (over.cause, over.text) == (name, f"killed: over its {name}")
    over = finish({"exit": 1, "over": name, "over_text": "by me"}).said.over
    assert over.text == "by me"


def test_a_text_is_one_line_no_longer_than_one_of_the_pipe():
    assert of.text_of(None) == ""
    assert of.text_of(" a\nb\0\r\n ") == "a b\ufffd"
    assert of.text_of("x" * (LINE_LIMIT + 1)) == "x" * LINE_LIMIT
    assert of.text_of("x" + "é" * LINE_LIMIT) == "x" + "é" * (LINE_LIMIT // 2 - 1)
    assert finish({"word": "done", "printed": "x" * 201}).printed == "x" * 200


def test_a_result_has_as_many_bytes_as_the_pipe_takes():
    most = of.MOST_RESULT
    assert most == LINE_LIMIT - len("result ")
    end = finish({"word": "done", "result": "x" * most})
    assert len(end.said.result) == most
    with pytest.raises(TooLarge, match=f"result has {most + 1} bytes, at most {most}"):
        finish({"word": "done", "result": "x" * (most + 1)})
    assert finish({"word": "done", "result": ""}).said.result == ""


def test_two_words_are_the_same_whatever_was_measured_and_written_about_them():
    first = finish({"word": "done", "text": "a", "run_us": 1, "printed": "x"})
    again = finish({"word": "done", "text": "b", "run_us": 2, "exit": None})
    other = finish({"word": "done", "exit": 1})
    assert first.digest == again.digest != other.digest


@pytest.mark.parametrize(
    "value", [None, 1, "x", "é", "YQ=", "YQ==\n", "Y!Q==", ["YQ=="]]
)
def test_what_is_no_base64_is_refused(value):
    with pytest.raises(BadInput, match="data is not bytes as base64"):
        of.data_of(value)


def test_bytes_come_as_base64_a_mebibyte_at_most():
    assert of.data_of("") == b""
    most = bytes(of.MOST_DATA)
    assert of.data_of(base64.b64encode(most).decode()) == most
    with pytest.raises(TooLarge, match="data has 1048577 bytes, at most 1048576"):
        of.data_of(base64.b64encode(most + b"x").decode())


def test_a_share_is_from_0_to_1_or_not_said():
    assert of.share({}, "progress") is None
    assert [of.share({"p": n}, "p") for n in (0, 0.5, 1)] == [0.0, 0.5, 1.0]
    for wrong in (-0.1, 1.1, True, "1"):
        with pytest.raises(BadInput, match=r"^p is "):
            of.share({"p": wrong}, "p")
