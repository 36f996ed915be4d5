"""What the version before guards had owed, brought and accepted runs once after an upgrade."""

import json

import pytest
from harness.post import Post, notice_queue
from harness.queues import RunningQueue, kept
from harness.waiting import wait_until
from process.test_webhook import WEBHOOK, receiver

pytestmark = pytest.mark.process

OPS = "ops@example.org"
FAIL = "echo err it broke >&3"
# That version asked no owner for a proof, and did not say who owes: the guard is all that has
# changed in what its owners write and send.
BEFORE = "from rq.message import guarded; guarded.QUEUES = {}"


def brought_by(before, root, name, script, **settings):
    queue = RunningQueue(root, name, script, **settings)
    queue.prelude = before
    return queue


@pytest.mark.slow
def test_all_that_was_pending_is_brought_once(tmp_path):
    post = Post(tmp_path)
    allow = {"allow": ["127.0.0.1"]}
    (tmp_path / "config/webhooks.json").write_text(json.dumps(allow))
    t = brought_by(BEFORE, tmp_path, "t", "obey", on_err={"mail": OPS, "every": 0})
    notice = notice_queue(tmp_path)
    hook = json.loads((WEBHOOK.parent / "config.json").read_text())
    webhook = RunningQueue(tmp_path, "webhook", WEBHOOK, **{**hook, "nice": 0})
    takers = (notice, webhook)
    with receiver() as heard, kept(t):
        url = f"http://127.0.0.1:{heard.port}/"
        for queue in takers:
            queue.prelude = BEFORE
            queue.configure(num_workers=0)
            queue.start()
        fails = {"param1": FAIL, "post_run_webhook": [url + "brought"]}
        brought = t.run(**fails)["msg_id"]
        # It is there, and neither has run; so is what a producer has sent by itself.
        for queue in takers:
            wait_until(lambda q=queue: q.ask("num_messages")["que"] == 1)
        story = json.dumps({"at": 1, "text": "sent"})
        notice.send(param1=f"mail:{OPS}", param2="t", param3="err", param4=story)
        webhook.send(param1=url + "sent", param2="{}")
        wait_until(lambda: t.ok("detail")["owed"] == 0)
        for queue in takers:
            queue.crash()
        fails["post_run_webhook"] = [url + "owed"]
        owed = t.run(**fails)["msg_id"]
        assert t.ok("detail")["owed"] == 2
        t.crash()

        t.prelude = ""
        t.start()
        for queue in takers:
            queue.prelude = ""
            queue.configure(num_workers=2)
            queue.start()
        wait_until(lambda: len(post.raw()) == 3 and len(heard.heard) == 3, 60)
        wait_until(lambda: t.ok("detail")["owed"] == 0)
        for queue in takers:
            wait_until(lambda q=queue: q.ask("num_messages")["done"] == 3)
            counts = queue.ask("num_messages")
            assert [counts[state] for state in ("que", "run", "err")] == [0, 0, 0]
            queue.close()
        bodies = "".join(post.bodies())
        assert [bodies.count(f"/q/t/{msg_id}") for msg_id in (brought, owed)] == [1, 1]
        assert len(post.raw()) == 3
        paths = sorted(each.path for each in heard.heard)
        assert paths == ["/brought", "/owed", "/sent"]
