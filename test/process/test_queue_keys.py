"""One key, one message: prepared, committed, ended, removed, restarted."""

import pytest
from harness.queues import running_queue, short

pytestmark = pytest.mark.process

KEY = {"_key": "relay/abc"}
SCRIPT = "#!/bin/sh\necho done >&3\n"


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path, SCRIPT) as queue:
        yield queue


def prepare(queue, **more):
    word, full_id, state = queue.ask("prep_message", {"dest": "t", **KEY, **more})
    assert word == "ok"
    return short(full_id), state


def test_a_second_prepare_with_a_key_gets_the_first_message(queue):
    first = prepare(queue, param1="x")
    assert first == prepare(queue, param1="y")
    assert first[1] == "prep"
    assert queue.ask("num_messages")["prep"] == 1


def test_a_prepared_message_keeps_its_key_over_a_crash(queue):
    first = prepare(queue)
    queue.crash()
    queue.start()
    assert prepare(queue) == first


def test_a_committed_message_is_known_by_its_key_in_any_state(queue):
    msg_id, _ = prepare(queue)
    assert queue.ok("commit_message", {"msg_id": msg_id}) == "msg commited"
    assert "_key" not in queue.ended(msg_id)
    assert prepare(queue) == (msg_id, "commited")
    queue.ok("delete_message", {"msg_id": msg_id})
    queue.restart()
    assert prepare(queue) == (msg_id, "commited")
    again = {"msg_id": msg_id, **KEY}
    assert queue.ok("commit_message", again) == "msg already commited"
    assert queue.refused("commit_message", {"msg_id": msg_id}) == "cannot find message"


def test_a_key_that_was_created_meanwhile_wins_over_the_prepared_message(queue):
    msg_id, _ = prepare(queue)
    other = short(queue.ok("create_message", {"dest": "t", **KEY}))
    assert other != msg_id
    commit = {"msg_id": msg_id}
    assert queue.ok("commit_message", commit) == "msg already commited"
    assert queue.ask("num_messages")["prep"] == 0
    assert prepare(queue) == (other, "commited")


def test_a_key_whose_prepared_message_was_removed_begins_another(queue):
    msg_id, _ = prepare(queue)
    queue.ok("delete_message", {"msg_id": msg_id})
    again, state = prepare(queue)
    assert (again != msg_id, state) == (True, "prep")


@pytest.mark.parametrize("key", ["x" * 201, "a\nb", ""])
def test_a_key_that_is_none_is_refused(queue, key):
    for command in ("prep_message", "create_message"):
        text = queue.refused(command, {"dest": "t", "_key": key})
        assert text == "_key is not 1 to 200 printable characters"


def test_an_attachment_with_another_digest_is_refused(queue, tmp_path):
    msg_id, _ = prepare(queue)
    (tmp_path / "f").write_text("x")
    asked = {"msg_id": msg_id, "pathname": str(tmp_path / "f"), "sha256": "0" * 64}
    assert queue.refused("attach_message", asked) == (
        "attachment f is not whole; attach it again"
    )
    assert queue.ok("commit_message", {"msg_id": msg_id}) == "msg commited"
    assert "attachments" not in queue.ended(msg_id)


def test_what_asks_for_later_is_run_again_and_not_counted(tmp_path):
    script = """#!/bin/sh
if [ -e again ]; then echo done >&3; else touch again; echo later 0-not yet >&3; fi
"""
    with running_queue(tmp_path, script) as queue:
        ended = queue.run(max_count=1)
        assert (ended["state"], ended["count"], ended["attempt"]) == ("done", 0, 2)


def send(queue, **more):
    return queue.ask("create_message", {"dest": "t", "_key": "mine", **more})


@pytest.mark.parametrize("how", ["crash", "restart"])
def test_a_key_that_came_with_another_message_is_refused_to_who_wants_to_know(
    queue, how
):
    _, first = send(queue, param1="x", param2="y")
    assert send(queue, param1="other") == ["ok", first]  # as ever
    (queue.crash if how == "crash" else queue.stop)()
    queue.start()
    assert send(queue, _same=True, param2="y", param1="x") == ["ok", first]
    text = queue.refused("create_message", {"dest": "t", "_key": "mine", "_same": True})
    assert text.startswith(
        f"the key 'mine' came with another message before, {short(first)}"
    )
    assert "differs in param1, param2:" in text
    assert "_same" not in queue.ended(short(first))


def test_of_another_request_with_a_key_the_fields_are_named_and_no_value(queue):
    fields = {"param1": "top secret", "own": [1], "due": 1.0, "priority": 3}
    send(queue, _key="own", **fields)

    def differing(**more):
        asked = {"dest": "t", "_key": "own", "_same": True, **fields, **more}
        text = queue.refused("create_message", asked)
        assert "secret" not in text
        return text.partition("differs in ")[2].partition(":")[0]

    assert differing(param1="a secret", own=[2], due=2.0) == "own, param1"
    assert differing(due=2.0) == "due"
    assert differing(param1=5, max_count=3, param9=5) == "max_count, param1, param9"


def test_of_a_key_of_before_nobody_knows_what_came_with_it(queue):
    msg_id, _ = prepare(queue)
    queue.ok("commit_message", {"msg_id": msg_id})
    again = queue.ok("create_message", {"dest": "t", **KEY, "_same": True})
    assert short(again) == msg_id
