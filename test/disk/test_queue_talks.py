"""What a queue answers, writes and leaves behind, talk by talk.

A change that is meant is written down with RQ_TALKS=write, and read in the diff.
"""

import os
from pathlib import Path

import pytest
from harness.inner_queue import inner  # noqa: F401
from harness.talks import Talk

TALKS = sorted((Path(__file__).parent / "queue_talks").glob("*.txt"))


@pytest.mark.parametrize("path", TALKS, ids=[path.stem for path in TALKS])
def test_a_queue_talks_as_it_did(path, inner):  # noqa: F811
    lines = path.read_text().splitlines()
    played = Talk(inner).played(lines)
    if os.environ.get("RQ_TALKS") == "write":
        path.write_text("\n".join(played) + "\n")
    assert played == lines
