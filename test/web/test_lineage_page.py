"""From the page of a message the way leads to what it was made from, and to what it made."""

import re

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until
from harness.web_server import BROWSER, web_alone

pytestmark = pytest.mark.process

FIRST, SECOND = "20260102.0304.05.006.7", "20260102.0304.05.006.8"
SCRIPT = f"""#!/bin/sh
echo 'result {{"messages": 1, "sent": ["box/{FIRST}", "../{SECOND}"]}}' >&3
echo done >&3
"""


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    with running_queue(tmp_path_factory.mktemp("root"), SCRIPT) as queue:
        yield queue


@pytest.fixture(scope="module")
def web(queue):
    with web_alone(queue.root.path) as web:
        yield web


def page(web, queue, made_from):
    url = queue.ok("create_message", {"dest": "t", "made_from": made_from})
    msg_id = url.rpartition("/")[2]
    wait_until(lambda: web.state("t", msg_id) == "done")
    return web.get(f"/q/t/{msg_id}", Accept=BROWSER).text


def test_both_ways_are_links(web, queue):
    about = {"queue": "t", "batch": "b", "messages": 9, "ids": [FIRST, SECOND]}
    text = page(web, queue, about)
    for place in (f"t/{FIRST}", f"t/{SECOND}"):
        assert f'<a href="/q/{place}">{place}</a>' in text
    # That queue is not here: an id of it is said, and leads nowhere.
    assert f'href="/q/box/{FIRST}"' not in text
    assert f'box/{FIRST} <span class="soft small">(no such queue)</span>' in text
    assert "and 7 more" in text
    assert "<dt>made from</dt>" in text
    assert "<dt>made_from</dt>" not in text


@pytest.mark.parametrize(
    "value",
    [
        "logs",
        {"queue": "../t", "messages": 1, "ids": [FIRST]},
        {"queue": "logs", "messages": 1, "ids": ["javascript:alert(1)", 7, None]},
        {"queue": "logs", "messages": "<b>", "ids": [FIRST]},
        {"queue": ["logs"], "messages": 1, "ids": {"a": 1}},
    ],
)
def test_what_names_no_message_stays_text(web, queue, value):
    text = page(web, queue, value)
    assert "<dt>made_from</dt>" in text
    assert "<dt>made from</dt>" not in text
    assert "javascript:" not in "".join(re.findall(r'href="[^"]*"', text))
