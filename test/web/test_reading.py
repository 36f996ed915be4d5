"""Reading always works: a queue that is down, or that nobody answers for, shows what its
folders hold, says so, and offers nothing that it would refuse."""

import json

import pytest
from harness.queues import running_queue
from harness.web_server import BROWSER, web_alone

pytestmark = pytest.mark.process

SCRIPT = """#!/bin/sh
echo "hello $RQ_PARAM1"
case $RQ_PARAM1 in bad) echo "err it broke" >&3 ;; *) echo "done fine" >&3 ;; esac
"""
NOBODY = "20260102.0304.05.006.7"
DOWN = (
    "The queue is DOWN: nothing starts and nothing is accepted. This page shows what its "
    "folders hold."
)
SILENT = "The queue's process does not answer. This page shows what its folders hold"


@pytest.fixture(scope="module", params=["down", "silent"])
def there(request, tmp_path_factory):
    """Give (queue, web, sentence): one is DOWN, one has no process any more."""
    root = tmp_path_factory.mktemp("reading")
    with running_queue(root, SCRIPT) as queue:
        ids = [queue.run(param1=one)["msg_id"] for one in ("good", "bad", "bad")]
        queue.ok("ack_errs", {"msg_id": ids[2]})
        queue.waits = queue.send(due=4e9)
        attached = queue.root.path / "a.txt"
        attached.write_text("attached")
        queue.prep = queue.ok("prep_message", {"dest": "t"}).rpartition("/")[2]
        asked = {"msg_id": queue.prep, "pathname": str(attached), "name": "a.txt"}
        queue.ok("attach_message", asked)
        queue.check()  # until then folders may lie where they were
        queue.done, queue.bad, queue.seen = map(queue.get, ids)
        if request.param == "down":
            queue.root.down("t").touch()
            queue.ask("wake")
        else:
            assert queue.stop() == 0
        with web_alone(root) as web:
            yield queue, web, DOWN if request.param == "down" else SILENT


def test_the_page_of_the_queue_shows_its_messages_and_its_counts(there):
    queue, web, said = there
    page = web.page("/q/t")
    assert said in page
    for one in (queue.done["msg_id"], queue.bad["msg_id"], queue.waits, queue.prep):
        assert f'href="/q/t/{one}"' in page
    for verb in ("retry", "ack", "cancel", "run", "commit", "ack_errs"):
        assert f"/confirm/{verb}" not in page
    told = web.get("/q/t/queue.json").json
    counts = told["queue"]["counts"]
    assert [counts[one] for one in ("prep", "que", "err", "errack", "done")] == [1] * 5
    assert told["silent"].startswith(said)


@pytest.mark.parametrize(
    ("tab", "name"),
    [("que", "waits"), ("err", "bad"), ("errack", "seen"), ("done", "done")],
)
def test_each_list_is_shown_and_searched(there, tab, name):
    queue, web, _ = there
    found = getattr(queue, name)
    msg_id = found if isinstance(found, str) else found["msg_id"]
    (section,) = web.get(f"/q/t/queue.json?state={tab}").json["sections"]
    assert [one["msg_id"] for one in section["rows"]] == [msg_id]
    (section,) = web.get(f"/q/t/queue.json?state={tab}&after={msg_id}").json["sections"]
    assert section["rows"] == []
    assert web.get(f"/q/t?state={tab}&find={msg_id}", Accept=BROWSER).status == 200


def test_a_message_is_shown_as_its_owner_would(there):
    queue, web, said = there
    for one in (queue.done, queue.bad, queue.seen):
        page = web.page(f"/q/t/{one['msg_id']}")
        assert said in page
        assert "/confirm/" not in page
        told = web.get(f"/q/t/{one['msg_id']}.json").json
        for name in ("state", "status", "param1", "attempt", "count", "path"):
            assert told[name] == one[name], name
        assert told["story"]["what"] == one["story"]["what"]
        state = web.get(f"/q/t/{one['msg_id']}/state.json")
        assert (state.status, state.json) == (200, [one["state"]])
    assert web.get(f"/q/t/{queue.seen['msg_id']}.json").json["acknowledged"] is True


def test_a_message_that_waits_says_what_lets_it_go_on(there):
    queue, web, said = there
    story = web.get(f"/q/t/{queue.waits}.json").json["story"]
    if said == DOWN:
        assert story["why"] == "The queue is DOWN."
    else:
        assert story["why"].endswith("and nobody answers for it.")


def test_logs_and_attachments_are_read(there):
    queue, web, said = there
    here = f"/q/t/{queue.bad['msg_id']}"
    page = web.page(f"{here}/log")
    assert "hello bad" in page
    assert said in page
    assert web.get(f"{here}/log.json").json["state"] == "err"
    assert "hello bad" in web.get(f"{here}/log/stdio.log").text
    stream = web.get(f"{here}/follow").text
    assert "hello bad" in stream
    assert "event: end" in stream
    assert web.get(f"/q/t/{queue.prep}/attach/a.txt").text == "attached"
    assert "attached" in web.page(f"/q/t/{queue.prep}/tailview/a.txt")


def test_what_is_not_there_is_not_found(there):
    _, web, _ = there
    for rest in ("", ".json", "/log", "/state.json"):
        assert web.get(f"/q/t/{NOBODY}{rest}", Accept=BROWSER).status == 404, rest


def test_transactions_are_shown_by_an_owner_whose_queue_is_down(there):
    _, web, said = there
    wanted = 200 if said == DOWN else 503
    assert web.get("/q/t/txn.json").status == wanted


@pytest.mark.slow
def test_a_sender_cannot_say_that_nobody_answers(tmp_path):
    with running_queue(tmp_path, SCRIPT) as queue:
        fields = {"_silent": "<b>rubbish", "_txn": "no/such", "phase": "none"}
        msg_id = queue.run(**fields)["msg_id"]
        with web_alone(tmp_path) as web:
            assert "rubbish" not in web.get(f"/q/t/{msg_id}", Accept=BROWSER).text
            queue.root.down("t").touch()
            queue.ask("wake")
            told = json.loads(web.get(f"/q/t/{msg_id}.json").text)
            assert told["_silent"] == DOWN
            assert "_txn" not in told
