"""The rules of workers that stay: what they are told, and when one is renewed."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.config import queue_config
from rq.errors import BadConfig
from rq.scripts import worker_protocol
from rq.scripts.worker_protocol import Limits

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.dictionaries(st.from_regex(r"RQ_[A-Z0-9_]+", fullmatch=True), TEXTS))
def test_a_line_is_json_that_a_shell_can_read(values):
    line = worker_protocol.line(values)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == values
    # A quotation mark ends a text wherever it stands, and \\uXXXX is the only escape.
    assert line.count(b'"') == 4 * len(values)
    assert re.fullmatch(rb"(?:[^\\]|\\u[0-9a-f]{4})*", line, re.DOTALL)


@pytest.mark.parametrize(
    ("messages", "age", "worn"),
    [(0, 0.0, False), (9, 59.9, False), (10, 0.0, True), (0, 60.0, True)],
)
def test_a_worker_is_worn_after_so_many_messages_or_seconds(messages, age, worn):
    assert Limits(10, 60.0).worn(messages, age) is worn


@pytest.mark.parametrize(
    ("how", "greeted", "text"),
    [
        ((1, None), False, "a worker ended before it said ready: exit status 1"),
        ((None, "SIGKILL"), True, "a worker ended without a message: SIGKILL"),
    ],
)
def test_it_is_told_how_a_worker_ended_unasked(how, greeted, text):
    assert worker_protocol.died(*how, greeted) == text


def test_a_queue_keeps_its_workers_only_if_its_config_says_so():
    path = Path("/r/config.json")
    assert queue_config({"script": "x"}, path).worker == "once"
    kept = {"script": "x", "worker": "persistent", "worker_messages": "5"}
    assert queue_config(kept, path).worker_messages == 5
    for key, value in (("worker", "forever"), ("worker_messages", 0)):
        with pytest.raises(BadConfig, match=key):
            queue_config({"script": "x", key: value}, path)
