"""Lists of messages show what can be shown, whatever lies beside it."""

import json

import pytest
from harness.cli import rq
from harness.queues import running_queue

pytestmark = pytest.mark.process


def test_a_torn_message_does_not_hide_the_others_from_a_filter(tmp_path):
    with running_queue(tmp_path, "#!/bin/sh\necho done >&3\n") as queue:
        whole, torn = (queue.run(param1="blue")["msg_id"] for _ in range(2))
        path = queue.folder(torn) / "msg"
        content = path.read_bytes()
        path.write_bytes(content[:20])
        asked = {"state": "done", "filter": "blue"}
        assert queue.ask("messages", asked) == [whole]
        path.write_bytes(content)
        assert queue.ask("messages", asked) == [torn, whole]


def test_errors_that_a_person_has_seen_are_counted_while_the_queue_runs(tmp_path):
    with running_queue(tmp_path, "#!/bin/sh\necho err >&3\n") as queue:
        seen, _ = (queue.run()["msg_id"] for _ in range(2))
        queue.ok("ack_errs", {"msg_id": seen})
        shown = json.loads(rq("ls", "--count", "--json", root=tmp_path).stdout)["t"]
        assert (shown["err"], shown["dismissed"]) == (1, 1)
        (tmp_path / "config/t.down").touch()
        queue.ask("wake")
        shown = json.loads(rq("ls", "--count", "--json", root=tmp_path).stdout)["t"]
        assert (shown["err"], shown["dismissed"]) == (1, 1)
