"""The page of a log shows what the file holds, whatever its pieces and the ends of its lines."""

from __future__ import annotations

import random

import pytest
from harness import chromium
from harness.extent import rotated
from harness.waiting import wait_until

from rq.web.livelog import line_start
from rq.words import visible

LONGEST = 16384  # characters of a line that a page keeps
RANDOM = random.Random(28)
PRINTS = """#!/bin/sh
cat "$RQ_PARAM1"
until [ -z "$RQ_PARAM2" ] || [ -e "$RQ_PARAM2" ]; do sleep 0.05; done
echo done >&3
"""


def bar(count):
    return b"".join(b"\r%6d of %d [%s]" % (n, count, b"#" * 20) for n in range(count))


LOGS = {
    "a progress bar": bar(4500),  # 180 KB, no newline at all
    "a bar with lines": b"".join(
        b"begun %d\n" % n + bar(900) + b"\n" for n in range(9)
    ),
    "lines": b"".join(b"%d a line as others are\n" % n for n in range(15000)),
    "lines of DOS": b"".join(b"%d a line of DOS\r\n" % n for n in range(15000)),
    "empty lines": b"a\n\n\n" * 2000 + b"\n" * 9000,
    "no newline": "\u00fcber \U0001f600 ".encode() * 25_000,
    "long lines": b"".join(bytes([97 + n]) * 100_001 + b"\n" for n in range(6)),
    "a newline at a seam": b"x" * 100
    + b"\n"
    + b"y" * (256 * 1024 - 1)
    + b"\n"
    + b"z" * 70_000,
    "no text": bytes(RANDOM.choices(range(32, 256), k=90_000))
    + b"\n"
    + b"\x80" * 90_000,
    "some of all": b"".join(
        RANDOM.choice(
            [b"\n", b"\r\n", "\u00e9\u0301".encode(), b"\xf0\x9f", b"a" * 99, b"\xc3"]
        )
        for _ in range(12_000)
    ),
}


def shown(data: bytes) -> list[str]:
    """Return the lines that a terminal shows of a log."""
    lines = []
    for line in data.decode("utf-8", "replace").split("\n"):
        there = ""
        for part in line.split("\r"):
            there = part + there[len(part) :]
        seen = visible.text(there)
        more = len(seen) - LONGEST
        note = f" \u2026 {more:,} characters of this line are not shown"
        lines.append(seen[:LONGEST] + note if more > 0 else seen)
    return lines if lines[-1] else lines[:-1]


LINES = """return [...document.querySelectorAll('#log .line')].map((line) => line.textContent);"""
OFFERS = "return document.querySelector('#log .log-more') !== null;"


def loaded(driver):
    """Load all that is earlier; return the lines on the page."""
    while driver.execute_script(OFFERS):
        before = driver.find_element("css selector", "#log .log-more").text
        chromium.click(driver, "#log .log-more")
        other = f"document.querySelector('#log .log-more')?.textContent !== {before!r}"
        chromium.until(driver, other)
        assert "not be loaded" not in driver.find_element("id", "log").text[:200]
    return driver.execute_script(LINES)


@pytest.fixture(scope="module")
def prints(stage):
    stage.queue("prints", PRINTS, workers=4)
    return stage


FIRST = ("some of all", "a bar with lines", "long lines", "a newline at a seam")
KINDS = [*FIRST, *(kind for kind in LOGS if kind not in FIRST)]


@pytest.mark.parametrize("kind", rotated(KINDS, len(FIRST)))
def test_a_page_shows_what_the_file_holds(prints, tmp_path, kind):
    file = tmp_path / "log"
    file.write_bytes(LOGS[kind])
    msg_id = prints.send("prints", str(file))
    wait_until(lambda: prints.state("prints", msg_id) == "done")
    path = next(
        prints.daemon.root.queue("prints").path.glob(f"done/**/{msg_id}/job/stdio.log")
    )
    data = path.read_bytes()
    assert LOGS[kind] in data
    prints.open(f"/q/prints/{msg_id}/log")
    chromium.shows(prints.driver, "It succeeded", "#log-end")
    lines, expected = loaded(prints.driver), shown(data)
    assert len(lines) == len(expected)
    assert [
        pair for pair in zip(lines, expected, strict=True) if pair[0] != pair[1]
    ] == []
    prints.clean()


def test_a_running_bar_is_seen_from_its_first_byte_to_its_last(prints, tmp_path):
    file, end = tmp_path / "log", tmp_path / "end"
    file.write_bytes(LOGS["a progress bar"])
    msg_id = prints.send("prints", str(file), param2=str(end))
    wait_until(lambda: prints.state("prints", msg_id) == "run")
    prints.open(f"/q/prints/{msg_id}/log")
    chromium.shows(prints.driver, "4499 of 4500", "#log")
    assert "wrote nothing" not in prints.driver.find_element("id", "log").text
    [_, start, line] = loaded(prints.driver)  # an attempt begins with an empty line
    assert "RQ START" in start
    assert line == "  4499 of 4500 [" + "#" * 20 + "]"
    end.touch()
    chromium.shows(prints.driver, "It succeeded", "#log-end")
    [*_, line] = prints.driver.execute_script(LINES)
    assert "#]" in line  # the file has no newline there, and the page adds none
    assert "RQ END - exit 0" in line
    prints.clean()


RULE = """const [pieces, done] = arguments;
import("/static/js/pieces.js").then(({ lineStart }) => {
  done(pieces.map((piece) => lineStart(new Uint8Array(piece))));
});"""


def test_the_browser_and_the_server_cut_a_log_in_the_same_places(stage):
    stage.open("/timers")
    pieces = [
        bytes(RANDOM.choices(b"ab\r\n\xc3\xbc\xf0\x9f\x98\x80", k=RANDOM.randrange(12)))
        for _ in range(3000)
    ]
    there = stage.driver.execute_async_script(RULE, [list(piece) for piece in pieces])
    assert there == [line_start(piece) for piece in pieces]
