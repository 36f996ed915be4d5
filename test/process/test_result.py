"""`result TEXT`: a value that scripts say, and programs and the next message read."""

import json

import pytest
from harness import lease_words
from harness.lease_words import finish, say
from harness.queues import running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process

VALUE = '{"total": 3, "of": "ä b"}'
SAYS = f"echo 'result first' >&3; echo 'result {VALUE}' >&3; echo run on >&3; "


@pytest.fixture(scope="module", params=["once", "persistent"])
def queue(request, tmp_path_factory):
    script = "obey" if request.param == "once" else "obey_on"
    root = tmp_path_factory.mktemp("root")
    with running_queue(root, script, worker=request.param) as queue:
        yield queue
        queue.check()


@pytest.mark.parametrize("word", ["done well", "err well", "resend 900-well"])
def test_the_last_result_is_kept_beside_the_text(queue, word):
    msg_id = queue.send(param1=f"{SAYS} echo {word} >&3")
    shown = queue.until(msg_id, "done", "err", "que")
    shown = (
        queue.until(msg_id, "done", "err")
        if "resend" not in word
        else wait_until(
            lambda: (found := queue.get(msg_id))["result"].get("outcome") and found
        )
    )
    assert shown["result"]["result"] == VALUE
    assert shown["result"]["job_status"].endswith("well")
    status = json.loads((queue.folder(msg_id) / "status").read_bytes())
    assert status["result"] == VALUE


def test_it_neither_ends_an_attempt_nor_changes_its_text(queue):
    shown = queue.run(param1="echo run half >&3; echo result 7 >&3")
    assert (shown["state"], shown["result"]["cause"]) == ("err", "no_word")
    assert (shown["result"]["result"], shown["result"]["job_status"]) == ("7", "half")


def test_a_result_is_as_long_as_a_line(queue):
    act = "{ printf 'result '; head -c 100000 /dev/zero | tr '\\0' x; echo; echo done; } >&3"
    shown = queue.run(param1=act)
    assert shown["result"]["result"] == "x" * (65536 - len("result "))


def test_the_next_message_knows_it(queue):
    last = 'echo "done $RQ_PARENT_RESULT" >&3'
    again = '[ "$RQ_ORIG_MSG_ID" = "$RQ_FULL_MSG_ID" ] || { ' + last + "; exit; }; "
    shown = queue.run(param1=f"{again}{SAYS} echo forward {queue.name} >&3")
    copies = wait_until(
        lambda: [
            row
            for row in queue.ok("list", {"state": "done", "limit": 50})
            if row["status"] == f"done - {VALUE}"
        ]
    )
    copy = queue.get(copies[0]["msg_id"])
    assert copy["parent_result"] == VALUE
    assert shown["result"]["result"] == VALUE
    dup = f"{again}{SAYS} echo dup 0-X-{queue.name} >&3; "
    dup += "read -r _ id <&4"
    shown = queue.run(param1=f'{dup}; echo "done $id" >&3')
    copy = queue.ended(shown["result"]["job_status"].rpartition("/")[2])
    assert copy["parent_result"] == VALUE


def test_a_copy_of_an_attempt_without_one_knows_none(queue):
    last = 'echo "done ${RQ_PARENT_RESULT-none}" >&3'
    again = '[ "$RQ_ORIG_MSG_ID" = "$RQ_FULL_MSG_ID" ] || { ' + last + "; exit; }; "
    dup = f"{again} echo dup 0-X-{queue.name} >&3; read -r _ id <&4"
    shown = queue.run(param1=f'{dup}; echo "done $id" >&3', parent_result="of another")
    copy = queue.ended(shown["result"]["job_status"].rpartition("/")[2])
    assert "parent_result" not in copy


def test_the_result_of_another_message_is_not_there(queue):
    tell = 'echo "done ${RQ_PARENT_RESULT-none}" >&3'
    first = queue.run(param1=tell, parent_result="of its parent")
    assert first["result"]["job_status"] == "of its parent"
    assert queue.run(param1=tell)["result"]["job_status"] == "none"


def test_results_of_leases(tmp_path):
    with running_queue(tmp_path, num_workers=0, pull={}) as queue:
        msg_id = queue.send()
        [taken] = lease_words.lease(queue)
        say(queue, "start", taken)
        [row] = finish(queue, taken, word="done", result="x" * 65536)
        assert (row["ok"], row["kind"]) == (False, "too_large")
        finish(queue, taken, word="done", result=VALUE)
        assert queue.get(msg_id)["result"]["result"] == VALUE


BATCH = r"""#!/bin/bash
mapfile -t ids < <(sed -n 's/^{"msg_id":"\([^"]*\)".*/\1/p' "$RQ_BATCH_FILE")
echo "result of all" >&3
echo "msg ${ids[0]} result of one" >&3
echo done >&3
"""


def test_results_of_a_batch_and_of_one_message_in_it(tmp_path):
    with running_queue(tmp_path, BATCH, batch={"max": 2, "wait": 60}) as queue:
        first, second = (queue.send() for _ in range(2))
        assert queue.ended(first)["result"]["result"] == "of one"
        assert queue.ended(second)["result"]["result"] == "of all"
