"""A log that means harm neither hangs the page nor eats the browser's memory."""

from __future__ import annotations

import os

import pytest
from harness import chromium
from harness.extent import rotated
from harness.waiting import wait_until

from rq.words import visible

E = "\x1b"
TWO = 2_000_000  # bytes
MOST_NODES = 1_000_000
SHOWN = """
const [address, pattern, times, done] = arguments;
import(address).then(({ Terminal }) => {
  const terminal = new Terminal();
  const whole = pattern.repeat(times);
  let lines = 0, characters = 0, spans = 0;
  const count = (line) => {
    lines += 1;
    spans = Math.max(spans, line.value().spans.length);
    for (const [text] of line.value().spans) characters = Math.max(characters, text.length);
  };
  for (let at = 0; at < whole.length; at += 65536) {
    for (const line of terminal.write(whole.slice(at, at + 65536))) count(line);
  }
  for (const line of terminal.rows) count(line);
  done({ lines, characters, spans, rest: terminal.rest.length });
}, (error) => done({ error: String(error) }));
"""
PATTERNS = {
    "far moves": f"{E}[999999999Bx{E}[999999999Gy{E}[2K",
    "a column, then a line": f"{E}[16384Gx\n",
    "erased and written again": "y" * 16000 + f"{E}[1K" * 4000,
    "a column after each erasure": f"{E}[16384Gx{E}[2K",
    "blanks to the left": f"{E}[16384G{E}[1Kx",
    "colours": f"{E}[31ma{E}[32mb",
    "parameters": f"{E}[" + "1;" * 5000 + "m",
    "one number": f"{E}[" + "9" * 100_000,
    "titles": f"{E}]0;" + "t" * 5000,
    "escapes": E,
    "returns": "\r",
    "half a line over": "z" * 8000 + "\r" + "x" * 4000,
    "backspaces": "ab\b\b",
    "lines": "\n",
    "marks": "\u202e",
    "joiners": "\u200d",
    "joiners between letters": "\u0645\u200c",
}


@pytest.mark.parametrize("pattern", rotated(PATTERNS.values(), 6), ids=PATTERNS)
def test_two_megabytes_of_it_are_read_and_bounded(stage, pattern):
    stage.open("/timers")
    times = TWO // len(pattern.encode())
    found = stage.driver.execute_async_script(
        SHOWN, "/static/js/ansi.js", pattern, times
    )
    assert "error" not in found, found
    assert found["characters"] <= 16384
    assert found["spans"] <= 1000
    assert found["rest"] <= 4200


LOG = (
    f"{E}[31mr{E}[32mg{E}[1;44mb{E}[0m" * 120_000
    + f"\n{E}[16000Gfar\n" * 100_000
    + "<img src=x onerror=alert(1)><script>alert(2)</script>\n"
    + f"{E}]0;<script>alert(3)</script>\x07{E}]8;;javascript:alert(4){E}\\link\n"
    + f"{E}[999999999B{E}[2J{E}[1;1Hup\b\b\b\bover\u202egpj.exe\x9b31m\n"
    + "y" * 20_000
    + f"{E}[1K" * 200_000
    + "\nthe end of it\n"
)


def test_a_hostile_log_is_shown_as_text_and_the_page_goes_on(stage, tmp_path):
    file = tmp_path / "log"
    file.write_text(LOG)
    stage.queue("vandal", f"#!/bin/sh\ncat {file}\necho done >&3\n")
    msg_id = stage.send("vandal")
    wait_until(lambda: stage.state("vandal", msg_id) == "done")
    stage.open(f"/q/vandal/{msg_id}/log?from=0")
    chromium.shows(stage.driver, "press Follow to go on", "#log-note", 60)
    chromium.click(stage.driver, "#follow")
    chromium.shows(stage.driver, "the end of it", "#log", 60)
    chromium.shows(stage.driver, "over<U+202E>gpj.exe<U+009B>31m", "#log")
    chromium.shows(stage.driver, "<img src=x onerror=alert(1)>", "#log")
    count = "return document.getElementsByTagName('*').length"
    assert stage.driver.execute_script(count) < MOST_NODES
    assert (
        stage.driver.find_elements("css selector", "#log a, #log img, #log script")
        == []
    )
    if picture := os.environ.get("RQ_PICTURE"):
        stage.driver.save_screenshot(picture)
    stage.clean()


def test_a_letter_with_thousands_of_marks_does_not_hold_the_page(stage, tmp_path):
    file = tmp_path / "marks"
    crowd = "a" + "\u0301" * 16_000
    file.write_text(f"{crowd}\n" * 46 + "the end of it\n")
    stage.queue("crowd", "#!/bin/sh\ncat $RQ_PARAM1\necho done >&3\n")
    msg_id = stage.send("crowd", str(file), param2=crowd * 3)
    wait_until(lambda: stage.state("crowd", msg_id) == "done")
    kept = "a" + "\u0301" * 30 + "<U+0301>" * 3
    stage.open(f"/q/crowd/{msg_id}")
    assert kept in chromium.text(stage.driver, ".facts")
    stage.open(f"/q/crowd/{msg_id}/log?from=0")
    said = "document.getElementById('log').textContent"
    chromium.until(stage.driver, f"{said}.includes('the end of it')")
    assert stage.driver.execute_script(f"return {said}.includes(arguments[0])", kept)
    stage.clean()


COMPARED = """
const done = arguments[0];
import("/static/js/visible.js").then(({ visible }) => {
  const hidden = [];
  for (let code = 0; code < 0x110000; code += 1) {
    const text = String.fromCodePoint(code);
    if (visible(text) !== text) hidden.push([code, visible(text)]);
  }
  done(hidden);
});
"""


@pytest.mark.slow
def test_the_browser_and_the_server_call_the_same_characters_invisible(stage):
    stage.open("/timers")
    there = stage.driver.execute_async_script(COMPARED)
    here = [
        [code, visible.text(chr(code))]
        for code in range(0x110000)
        if visible.text(chr(code)) != chr(code)
    ]
    assert there == here


JOINED = [
    "\u0645\u06cc\u200c\u062e",  # a word of Persian
    "\u0915\u094d\u200d\u0937 \u0915\u094d\u200c\u0937",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u2764\ufe0f\u200d\U0001f525 \U0001f468\U0001f3fb\u200d\U0001f4bb",
]
LOOSE = [
    "a\u200cb",
    "\u200d",
    "a\u200d\u0645",
    "\u0645\u200c",
    "\u0645\u200c\u200c\u062e",
]


def test_joiners_are_shown_as_they_are_between_letters_that_use_them(stage):
    stage.open("/timers")
    texts = [*JOINED, *LOOSE]
    script = """const [texts, done] = arguments;
    import("/static/js/visible.js").then(({ visible }) => {
      done(texts.map((text) => [visible(text), visible(text.slice(1), text.slice(0, 1))]));
    });"""
    there = stage.driver.execute_async_script(script, texts)
    assert [whole for whole, _ in there] == [visible.text(text) for text in texts]
    assert [visible.text(text) for text in JOINED] == JOINED
    assert all("<U+200" in visible.text(text) for text in LOOSE)
    cut = [text for text in texts if ord(text[0]) < 0x10000]
    rest = [after for text, (_, after) in zip(texts, there, strict=True) if text in cut]
    assert rest == [visible.text(text[1:], text[0]) for text in cut]
