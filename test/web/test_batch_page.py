"""A batch in the browser: who is in it, one log for all, ended only as a whole."""

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until
from harness.web_server import web_alone

pytestmark = pytest.mark.process

PATIENCE = 30.0
SCRIPT = """#!/bin/sh
echo "printed for all"; echo "run sorting" >&3
while :; do sleep 0.05; done
"""


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path, SCRIPT, "b", batch={"max": 3, "wait": 3600}) as queue:
        yield queue


@pytest.fixture
def web(queue):
    with web_alone(queue.root.path) as web:
        yield web


@pytest.fixture
def ids(queue):
    """Three messages that run together."""
    found = [queue.send() for _ in range(3)]
    wait_until(lambda: queue.get(found[2])["status"] == "run - sorting", PATIENCE)
    return found


@pytest.mark.slow
def test_the_pages_tell_of_the_batch_and_offer_to_end_it_whole(web, ids):
    for msg_id in ids:
        shown = web.page(f"/q/b/{msg_id}")
        assert "Log of its batch" in shown
        assert f"{ids[0]}.1" in shown
        assert f"/q/b/{msg_id}/confirm/cancel_batch" in shown
        assert f'/q/b/{msg_id}/confirm/cancel"' not in shown
        assert f"rq cancel --batch b/{msg_id}" in shown
    assert web.page("/q/b").count("/confirm/cancel_batch") == 3
    assert "batch of 3, 3 left" in web.page("/")


@pytest.mark.slow
def test_each_message_shows_the_log_of_its_batch(web, ids):
    for msg_id in ids:
        wait_until(
            lambda msg_id=msg_id: (
                "printed for all" in web.get(f"/q/b/{msg_id}/log/stdio.log").text
            ),
            PATIENCE,
        )


def test_a_batch_is_ended_from_its_page(queue, web, ids):
    asked = f"/q/b/{ids[1]}/confirm/cancel_batch"
    assert "Cancel the whole batch?" in web.page(asked)
    refused = web.post(f"/q/b/{ids[1]}", {"_method": "cancel", "x_format": "json"})
    assert "in a batch with 2 more" in refused.text
    done = web.post(f"/q/b/{ids[1]}", {"_method": "cancel_batch", "x_format": "json"})
    assert done.json == ["ok", "batch of 3 is being cancelled"]
    for msg_id in ids:
        assert queue.ended(msg_id, PATIENCE)["result"]["cause"] == "cancelled"


@pytest.mark.slow
def test_a_message_that_waits_for_its_batch_says_so(queue, web):
    first = queue.send()
    said = "Its batch starts when 3 messages are there (now 1), or in"
    wait_until(lambda: said in web.page("/q/b"), PATIENCE)
    assert "Its batch starts when 3 messages are there" in web.page(f"/q/b/{first}")
