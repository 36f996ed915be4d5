"""The lists of a queue's page: how long, since when, in which order, which are chosen."""

import re

import pytest
from harness.index import Lines, fill
from harness.queues import running_queue
from harness.waiting import wait_until
from harness.web_server import web_alone

pytestmark = pytest.mark.process
PARTS = {"a": 3.0, "b": 9.0, "c": 1.0}


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with running_queue(root, '#!/bin/sh\necho "err $RQ_PARAM1" >&3\n') as queue:
        queue.ids = {}
        for name in PARTS:
            url = queue.ask("create_message", {"dest": "t", "param1": name})[1]
            queue.ids[name] = url.rpartition("/")[2]
            wait_until(lambda: queue.ask("num_messages")["err"] == len(queue.ids))
        yield queue


@pytest.fixture(scope="module")
def web(queue):
    with web_alone(queue.root.path) as web:
        yield web


def listed(text):
    """Return the params of the rows, in their order."""
    return "".join(re.findall(r'<span class="clip mono">(\w)</span>', text))


def test_a_list_is_sorted_by_the_server_and_pages_go_on(queue, web):
    path = "/q/t?state=err"
    assert listed(web.page(path)) == "cba"
    unsorted = web.page(f"{path}&sort=-ran")
    assert listed(unsorted) == "cba"
    assert "The list is not sorted: the index" in unsorted
    lines = Lines("t")
    for name, ran in PARTS.items():
        lines.accept(queue.ids[name])
        lines.run(queue.ids[name], "fail", "err", ran=ran)
    fill(queue.root, lines)
    assert listed(web.page(f"{path}&sort=-ran")) == "bac"
    assert listed(web.page(f"{path}&sort=ran")) == "cab"
    shown = web.page(f"{path}&sort=-ended")
    assert listed(shown) == "cba"
    assert 'aria-sort="descending"' in shown
    assert "?state=err&sort=ended" in shown  # the same head turns it round
    assert listed(web.page(f"{path}&sort=<script>")) == "cba"
    assert listed(web.page(f"{path}&sort=-ran&offset=2")) == "c"


def test_ended_messages_say_when_how_long_they_waited_and_ran(web):
    shown = web.page("/q/t?state=err")
    for head in ("Ended", "Waited", "Ran"):
        assert re.search(rf"<th [^>]*><a [^>]*>{head}</a>", shown), head
    assert len(re.findall(r'data-label="ended"><time data-when="\d{10}"', shown)) == 3


def test_chosen_messages_and_all_that_match_lead_to_the_bulk_page(queue, web):
    shown = web.page("/q/t?state=err&find=a")
    assert 'name="ids"' in shown
    assert 'href="/q/t/bulk?state=err&find=a">All that match</a>' in shown
    two = f"ids={queue.ids['a']}&ids={queue.ids['b']}"
    counted = web.page(f"/q/t/bulk?state=err&{two}&action=ack")
    assert "Of the 2 messages that were chosen in the list" in counted
    assert "2 messages match" in counted
    fields = {"state": "err", "ids": f"{queue.ids['a']} {queue.ids['b']}"}
    web.post("/q/t/bulk", {**fields, "action": "ack"})
    wait_until(lambda: queue.ask("num_messages")["err"] == 1)
    assert listed(web.page("/q/t?state=err")) == "c"
