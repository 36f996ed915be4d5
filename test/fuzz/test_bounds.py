"""What is large or built to be slow costs bounded time and memory.

Each reader gets its worst in a process that the kernel ends after a minute of CPU or a
GiB of memory: what grows with the square of its input does not get through.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT

LIMITS = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from contextlib import suppress
from rq.errors import RQError
"""
WORST = {
    "a_frame_in_small_pieces": """
        from rq.rpc.wire import Frames, frame
        data, frames, found = frame(bytes(8 * 2**20)), Frames(), []
        for at in range(0, len(data), 64):
            found += frames.feed(data[at : at + 64])
        assert found == [bytes(8 * 2**20)]
    """,
    "a_million_frames": """
        from rq.rpc.wire import Frames, frame
        assert len(Frames().feed(frame(b"ping") * 10**6)) == 10**6
    """,
    "a_line_without_end": """
        from rq.scripts.pipe import Lines
        lines = Lines()
        for _ in range(20_000):
            assert lines.feed(b"x" * 4096) == []
        assert len(lines.end()[0]) == 65536
    """,
    "a_script_that_says_nothing_often": """
        from rq.scripts.pipe import Lines, parse
        lines = Lines()
        for _ in range(100):
            assert not any(map(parse, lines.feed(b"\\n" * 10_000)))
    """,
    "deep_messages": """
        from rq.message.message import from_disk
        for data in (b"[" * 10**7, b'{"a":' * 10**6, b"9" * 10**7, b'"' + b"a" * 10**7):
            with suppress(RQError):
                from_disk(data, "x", 1.0)
    """,
    "a_journal_of_nonsense": """
        import tempfile
        from pathlib import Path
        from rq.journal import line
        from rq.journal.segment_file import Segment, read_segment
        start = line.seed("j", "0" * 15 + "1")
        head = {"g": 0, "ev": "open", "journal": "j", "segment": "0" * 15 + "1"}
        data = line.sealed(line.body(head), start) + b'{"crc":"00000000",\\n' * 10**6
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "0" * 15 + "1")
            path.write_bytes(data)
            read = read_segment(Segment(path, path.name, 1, None))
        assert read.events == [] and read.bad
    """,
    "a_form_of_a_million_fields": """
        import falcon
        from rq.web import forms
        with suppress(falcon.HTTPError):
            forms._urlencoded(b"a&" * 10**6)
        forms.Form([("mesg[" + "[" * i, "x") for i in range(1000)]).nested("mesg")
    """,
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_that_can_come_costs_little(name):
    body = "\n".join(line[8:] for line in WORST[name].splitlines())
    done = subprocess.run(
        [sys.executable, "-c", LIMITS + body],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
