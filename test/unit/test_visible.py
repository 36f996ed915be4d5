"""What moves the cursor or cannot be seen never reaches a reader as it is."""

import doctest
import json
import unicodedata

import pytest

from rq.builtin.notice import letter
from rq.builtin.notice.stories import Story
from rq.cli.terminal import Script
from rq.words import visible

E = "\x1b"
MARKS = "\u202a\u202e\u2066\u2069\u200b\u200f\ufeff\u061c\U000e0041\u00ad\u3164\u2028"


@pytest.mark.parametrize(
    "mark", [*MARKS, "\x00", "\x07", "\b", "\x7f", "\x9b", "\ud800"]
)
def test_what_cannot_be_seen_becomes_its_number(mark):
    shown = f"a<U+{ord(mark):04X}>b"
    assert visible.text(f"a{mark}b") == visible.line(f"a{mark}b") == shown


def test_every_control_and_format_character_is_seen_but_those_of_arabic_numbers():
    hidden = [
        chr(code)
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and visible.line(chr(code)) == chr(code)
    ]
    names = {unicodedata.name(one).split()[0] for one in hidden}
    assert names <= {"ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN"}


@pytest.mark.parametrize("text", ["naïve Ωμέγα 日本語 ✔️ 🎉\tx\ny\r\nz", "", "<U+202E>"])
def test_what_can_be_seen_stays_as_it_is(text):
    assert visible.text(text) == text


@pytest.mark.parametrize(
    "value", [MARKS, "\x7f\x9b\x1b", "plain ü", {"\u202e": ["\ufeff"]}]
)
def test_json_keeps_its_value_and_shows_all_of_it(value):
    dumped = visible.json_text(json.dumps(value, ensure_ascii=False))
    assert json.loads(dumped) == value
    assert visible.text(dumped) == dumped


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (f"{E}[1;31mred{E}[0m\n", f"{E}[1;31mred{E}[0m\n"),
        (f"{E}[38;2;1;2;3mx{E}[m", f"{E}[38;2;1;2;3mx{E}[m"),
        (f"a{E}[2J{E}[H{E}[10A{E}[5Kb", "ab"),
        (f"a{E}[?1049hb{E}[>4;2mc", "abc"),
        (f"a{E}]0;title\x07b", "ab"),
        (f"a{E}]8;;http://x/{E}\\link{E}]8;;{E}\\b", "alinkb"),
        (f"a{E}]52;c;cm0gLXJm\x07b", "ab"),
        (f"a{E}]0;never ends\nb", "a\nb"),
        (f"a{E}P+q544e{E}\\b{E}_x{E}\\c{E}^y{E}\\d{E}Xz{E}\\e", "abcde"),
        (f"a{E}c{E}7{E}8{E}(0{E}#8{E}=b", "ab"),
        (f"a{E}", "a<U+001B>"),
        (f"a{E}[12", "a<U+001B>[12"),
        (f"a{E}{E}[31mb{E}[0m", f"a<U+001B>{E}[31mb{E}[0m"),
        ("a\x9b31mb", "a<U+009B>31mb"),
        ("safe\b\b\b\bevil", "safe" + "<U+0008>" * 4 + "evil"),
        ("rm -rf /\rls\n", "rm -rf /\nls\n"),
        ("10 %\r20 %\r\n", "10 %\n20 %\n"),
        ("one\r\r\ntwo\r", "one\ntwo\n"),
        ("a\x00\x07\x0e\x0cb", "a<U+0000><U+0007><U+000E><U+000C>b"),
        ("exe.\u202egpj", "exe.<U+202E>gpj"),
        (f"{E}[31mleft on", f"{E}[31mleft on{E}[0m"),
        (
            "\u0645\u06cc\u200c\u062e a\u200cb\u200c\r\r",
            "\u0645\u06cc\u200c\u062e a<U+200C>b<U+200C>\n",
        ),
        ("\U0001f468\u200d\U0001f469 \u200d", "\U0001f468\u200d\U0001f469 <U+200D>"),
    ],
)
def test_of_sequences_only_colours_reach_the_terminal_however_they_are_cut(
    written, shown
):
    data = written.encode()
    for cut in range(len(data) + 1):
        script = Script()
        pieces = script.take(data[:cut]), script.take(data[cut:]), script.end()
        assert "".join(pieces) == shown


def test_bytes_that_are_no_text_are_no_sequences():
    script = Script()
    shown = script.take(b"a\x9b31mb\xff\xc3") + script.take(b"\xa9\x80") + script.end()
    assert shown == "a\ufffd31mb\ufffdé\ufffd"


@pytest.mark.parametrize("kind", ["]", "P", "["])
def test_a_sequence_that_never_ends_hides_no_more_than_its_share(kind):
    script = Script()
    shown = "".join(
        script.take(b) for b in [f"{E}{kind}".encode(), *[b"1" * 1000] * 20]
    )
    assert len(shown + script.end()) > 15_000


def test_of_what_a_program_printed_the_last_line_is_shown_without_controls():
    assert doctest.testmod(visible).failed == 0
    assert visible.last_line(f"a\n{MARKS}x{E}]0;title\a\x00y\x9b\n\r\n", 9) == "xy"
    assert visible.last_line("", 9) == visible.last_line(" \n\t\n", 9) == ""


def test_what_stands_on_a_line_that_was_written_over_is_shown():
    bar = "".join(f"\r{n} %" for n in range(100, 0, -1))
    assert visible.uncoloured(f"{bar}\r{E}[Kdone\r\n") == "done\n"
    assert visible.uncoloured("12345\rab\n\r\n") == "ab345\n\n"
    assert visible.uncoloured(f"loading{E}[2K\rab") == "ab     "


def test_what_a_sender_writes_forges_no_line_of_a_letter():
    values = {"param1": "x\r\nstate  done\u202e", "at": 0, "text": "no"}
    story = Story(queue="q", matter="err", values=values)
    assert "param1  x<U+000D><U+000A>state  done<U+202E>\n" in letter.body(story, "")
