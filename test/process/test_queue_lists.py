"""Lists of messages show what can be shown, whatever lies beside it."""

import pytest
from support import running_queue

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
