"""What a script writes looks as it would in a terminal; checked in a browser's own script."""

from __future__ import annotations

import pytest
from harness import chromium

RUN = """
const [address, pieces, done] = arguments;
import(address).then(({ Terminal }) => {
  const terminal = new Terminal();
  const lines = [];
  for (const piece of pieces) lines.push(...terminal.write(piece));
  terminal.end();
  lines.push(...terminal.rows);
  done(lines.map((line) => [line.value().spans, line.value().cut]));
}, (error) => done(String(error)));
"""


@pytest.fixture(scope="module")
def terminal(stage):
    stage.open("/timers")

    def run(*pieces):
        address = "/static/js/ansi.js"
        lines = stage.driver.execute_async_script(RUN, address, list(pieces))
        assert isinstance(lines, list), lines
        return lines

    return run


def spans(terminal, *pieces):
    return [line for line, _ in terminal(*pieces)]


def texts(terminal, *pieces):
    return ["".join(text for text, _ in line) for line in spans(terminal, *pieces)]


E = "\x1b"


@pytest.mark.parametrize(
    ("written", "style"),
    [
        (f"{E}[31mx", "fg-1"),
        (f"{E}[1;32mx", "ansi-b fg-2"),
        (f"{E}[97;44mx", "fg-15 bg-4"),
        (f"{E}[38;5;208mx", "fg-208"),
        (f"{E}[38;2;255;0;0mx", "fg-196"),
        (f"{E}[48;2;0;0;0mx", "bg-16"),
        (f"{E}[38;2;128;128;128mx", "fg-244"),
        (f"{E}[7mx", "ansi-r"),
        (f"{E}[1m{E}[22mx", ""),
        (f"{E}[31m{E}[0mx", ""),
        (f"{E}[31m{E}[mx", ""),
        (f"{E}[38;5;999mx", ""),
        (f"{E}[38;2;1;2;300mx", ""),
        (f"{E}[<script>mx", None),
    ],
)
def test_colours_become_classes(terminal, written, style):
    [line] = spans(terminal, written)
    if style is not None:
        assert line == [["x", style]]
    assert all(set(one) <= set("abdfghinrsu-0123456789 ") for _, one in line)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        (("one\rtwo",), ["two"]),
        (("12345\rab",), ["ab345"]),
        ((" 10 %\r 20 %\r 30 %\n",), [" 30 %", ""]),
        (("windows\r\nlines\r\n",), ["windows", "lines", ""]),
        (("windows\r", "\nlines"), ["windows", "lines"]),
        ((f"loading\r{E}[Kdone",), ["done"]),
        ((f"loading{E}[2K\rdone",), ["done"]),
        (("ab\bc",), ["ac"]),
        (("a\x00b\x01c",), ["a<U+0000>b<U+0001>c"]),
        (("a\u202eb\x9bc",), ["a<U+202E>b<U+009B>c"]),
        ((f"a{E}[2Cb{E}[99999999Ac",), ["a  bc"]),
        ((f"a{E}[999999999999Cb",), ["a" + " " * 511 + "b"]),
        (
            (f"one\ntwo\n{E}[2A{E}[2Kuno\n{E}[2Kdue\nquattro",),
            ["uno", "due", "quattro"],
        ),
        ((f"one\ntwo{E}[Fu{E}[Et\n",), ["une", "two", ""]),
        ((f"one\ntwo\nthree{E}[2A\r{E}[Jall",), ["all", "", ""]),
        ((f"one\n{E}[9A{E}[9Bx",), ["one", "x"]),
        (("1\n" * 50 + f"{E}[99Atop",), ["1"] * 11 + ["top", *["1"] * 38, ""]),
        (("\U0001f600\U0001f600\rx",), ["x\U0001f600"]),
        (("\U0001f600\b\U0001f601\b\b\b",), ["\U0001f601"]),
        (("x\r\n" * 2,), ["x", "x", ""]),
        (("\u0645\u06cc\u200c", "\u062e\u200c"), ["\u0645\u06cc\u200c\u062e<U+200C>"]),
        (("bell\x07",), ["bell"]),
        ((f"{E}]0;title\x07text",), ["text"]),
        ((f"{E}]8;;javascript:alert(1){E}\\link{E}]8;;{E}\\",), ["link"]),
        ((f"{E}]0;never ends\nnext",), ["", "next"]),
        ((f"{E}[2J{E}[H{E}(Btext",), ["text"]),
        ((E, "[3", "1mx"), ["x"]),
        ((f"{E}]0;ti", f"tle{E}", "\\text"), ["text"]),
    ],
)
def test_control_characters_do_what_they_do(terminal, pieces, lines):
    assert texts(terminal, *pieces) == lines


def test_pieces_may_end_anywhere(terminal, stage):
    whole = (
        f"plain {E}[1;31mred{E}[0m\r{E}[Kover\n{E}]8;;http://x/{E}\\l{E}]8;;{E}\\ é\n"
        f"\U0001f468\u200d\U0001f469 \u0645\u06cc\u200c\u062e a\u200cb{E}[2A{E}[3CX{E}[Bq\r\n"
    )
    expected = spans(terminal, whole)
    for cut in range(1, len(whole)):
        assert spans(terminal, whole[:cut], whole[cut:]) == expected
    halves = RUN.replace("of pieces)", "of pieces[0].split(''))")  # of surrogate pairs
    lines = stage.driver.execute_async_script(halves, "/static/js/ansi.js", [whole])
    assert [line for line, _ in lines] == expected


@pytest.mark.parametrize("begin", [f"{E}]0;", f"{E}["], ids=["title", "parameters"])
@pytest.mark.parametrize("size", [4090, 4096, 4097, 5000])
def test_a_long_sequence_is_shown_or_not_whatever_the_pieces(terminal, begin, size):
    whole = (
        begin + "1" * (size - len(begin)) + ("m" if "[" in begin else f"{E}\\") + "x"
    )
    expected = spans(terminal, whole)
    for cut in (2, 100, 4095, 4096, 4097, 4098, size, size + 1):
        assert spans(terminal, whole[:cut], whole[cut:]) == expected, cut


def test_an_attempt_does_not_write_over_the_one_before(terminal):
    start = "7 - 2026-11-22 16:10:44 +0000 - RQ START - run"
    lines = texts(terminal, f"secret\n{start}\n{E}[9Ax")
    assert lines == ["secret", start, "x"]


def test_of_a_long_line_that_ends_with_a_return_the_rest_is_still_said(terminal):
    [[_, cut], _] = terminal("x" * 20000 + "\r\n")
    assert cut == 20000 - 16384


def test_a_line_of_ten_megabytes_is_cut_and_says_so(terminal, stage):
    script = RUN.replace("for (const piece of pieces)", "for (const piece of huge)")
    huge = "const huge = Array(160).fill('x'.repeat(65536)).concat('\\nnext');"
    lines = stage.driver.execute_async_script(huge + script, "/static/js/ansi.js", [])
    [first, second] = lines
    assert len(first[0][0][0]) == 16384
    assert first[1] == 160 * 65536 - 16384
    assert second[0] == [["next", ""]]


def test_a_sequence_that_never_ends_is_not_kept_for_ever(terminal):
    [line] = texts(terminal, f"{E}[" + "1" * 10000)
    assert len(line) > 1000


HUGE = """#!/bin/sh
head -c 10000000 /dev/zero | tr '\\0' y
echo
printf 'bad \\377\\376 utf-8, cut \\303'
sleep 0.3
printf '\\274ber\\n'
seq 30000
echo 'the end'
echo done >&3
"""


@pytest.mark.slow
def test_long_lines_bad_bytes_and_many_lines_stay_within_bounds(stage):
    stage.queue("huge", HUGE)
    msg_id = stage.send("huge")
    stage.open(f"/q/huge/{msg_id}/log?from=0")
    chromium.shows(stage.driver, "press Follow to go on", "#log-note")
    chromium.shows(stage.driver, "characters of this line are not shown", "#log")
    chromium.click(stage.driver, "#follow")
    chromium.shows(stage.driver, "It succeeded", "#log-end")
    chromium.shows(stage.driver, "the end", "#log")
    many = "document.querySelectorAll('#log .line').length"
    assert stage.driver.execute_script(f"return {many}") <= 20100
    stage.open(f"/q/huge/{msg_id}/log")
    chromium.click(stage.driver, ".log-more")
    chromium.until(stage.driver, f"{many} > 20000 || {many} > 12000")
    stage.clean()


@pytest.mark.slow
def test_a_text_is_found_anywhere_in_the_whole_log(stage):
    stage.queue("found", "#!/bin/sh\necho needle one\nseq 4000000\necho done >&3\n")
    msg_id = stage.send("found")
    stage.open(f"/q/found/{msg_id}/log")
    chromium.shows(stage.driver, "It succeeded", "#log-end")
    stage.driver.find_element("id", "find").send_keys("NEEDLE", "\ue007")
    chromium.shows(stage.driver, "1 match of “NEEDLE” in the whole log", "#found")
    chromium.click(stage.driver, "#found a")
    chromium.until(stage.driver, "document.querySelector('#log .line.hit')")
    chromium.shows(stage.driver, "needle one", "#log .hit")
    stage.clean()


LONG = """#!/bin/sh
seq 500
until [ -e "$RQ_PARAM1" ]; do sleep 0.05; done
seq 7
sleep 300
"""


@pytest.mark.slow
def test_following_ends_when_the_reader_scrolls_up_and_new_lines_are_counted(
    stage, tmp_path
):
    stage.queue("long", LONG)
    msg_id = stage.send("long", str(tmp_path / "scrolled-up"))
    stage.open(f"/q/long/{msg_id}/log")
    chromium.shows(stage.driver, "500", "#log")
    chromium.until(stage.driver, "document.getElementById('log').scrollTop > 1000")
    stage.driver.execute_script("document.getElementById('log').scrollTop = 300")
    pressed = "document.getElementById('follow').ariaPressed"
    chromium.until(stage.driver, f"{pressed} === 'false'")
    (tmp_path / "scrolled-up").touch()
    chromium.shows(stage.driver, "Jump to the end, 7 new lines", "#jump")
    top = "return document.getElementById('log').scrollTop"
    assert stage.driver.execute_script(top) == 300
    chromium.click(stage.driver, "#jump")
    chromium.until(stage.driver, f"{pressed} === 'true'")
    stage.clean()
