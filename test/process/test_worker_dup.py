"""`dup`: a script copies its message to another queue and reads one line in answer."""

import hashlib

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process
# Says what param2 holds on the pipe, reads the answer, reports done with it; its copy
# says nothing, or each copy would make the next, for ever.
ASK = 'echo "$1" >&3; read -r answer <&4; echo "done $answer" >&3'
ONCE = (
    '[ "$RQ_ORIG_MSG_ID" = "$RQ_FULL_MSG_ID" ] || { echo done a copy >&3; exit; }\n'
    + ASK
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two queues of one root."""
    root = tmp_path_factory.mktemp("root")
    with (
        running_queue(root, name="t", num_workers=4) as here,
        running_queue(root, name="other", num_workers=4) as there,
    ):
        yield here, there


@pytest.fixture
def queues(pair):
    yield pair
    for one in pair:
        one.check()


def asked(queue, line, **fields):
    """Let a script say `line`; return the answer it got, and its message."""
    message = queue.run(param1=ONCE, param2=line, **fields)
    assert message["state"] == "done"
    return message["result"]["job_status"], message


def test_a_dup_is_answered_with_the_full_id_and_nothing_else(queues):
    here, there = queues
    answer, message = asked(
        here, "dup 0-X-other", param3="three", src="me", count=3, max_count=9, zz=[1]
    )
    word, _, full_id = answer.partition(" ")
    assert word == "ok"
    assert full_id.startswith("http://127.0.0.1:3333/q/other/")
    copy = there.ended(full_id.rpartition("/")[2])
    assert copy["dest"] == "other"
    assert (copy["count"], copy["max_count"]) == (0, 9)
    assert copy["orig_msg_id"] == message["orig_msg_id"]
    assert (copy["param3"], copy["src"], copy["zz"]) == ("three", "me", [1])
    assert "force_remote" not in copy


def test_a_dup_to_its_own_queue_does_not_deadlock(queues):
    here, _ = queues
    message = here.run(param1=ONCE, param2="dup 0-X-t")
    word, full_id = message["result"]["job_status"].split()
    assert word == "ok"
    copy = here.ended(full_id.rpartition("/")[2])
    assert copy["status"] == "done - a copy"
    assert copy["orig_msg_id"] == message["orig_msg_id"]


def test_queues_that_dup_into_each_other_at_once_all_get_their_answers(
    queues, tmp_path
):
    here, there = queues
    go = tmp_path / "go"
    wait = f"until [ -e {go} ]; do sleep 0.05; done\n"
    sent = [
        (one, one.send(param1=wait + ONCE, param2=f"dup 0-X-{to.name}"))
        for _ in range(10)
        for one, to in ((here, there), (there, here), (here, here))
    ]
    go.touch()
    for one, msg_id in sent:
        assert one.ended(msg_id)["result"]["job_status"].startswith("ok http://")
    for one in queues:
        wait_until(lambda one=one: one.ask("num_messages")["que"] == 0)
        wait_until(lambda one=one: one.ask("num_messages")["run"] == 0)


def test_a_dup_waits_as_long_as_it_says(queues):
    here, there = queues
    answer, message = asked(here, "dup 500-X-other")
    copy = there.get(answer.rpartition("/")[2])
    assert copy["state"] == "que"
    assert 440 < copy["due"] - message["result"]["finished"] < 501
    there.ok("delete_message", {"msg_id": copy["msg_id"]})


def test_a_dup_shares_its_attachments(queues, tmp_path):
    here, there = queues
    content = b"a picture " * 100_000
    (tmp_path / "cat.jpg").write_bytes(content)
    full_id = here.ok(
        "prep_message", {"dest": "t", "param1": ASK, "param2": "dup 9-X-other"}
    )
    msg_id = full_id.rpartition("/")[2]
    here.ok("attach_message", {"msg_id": msg_id, "pathname": f"{tmp_path}/cat.jpg"})
    here.ok("commit_message", {"msg_id": msg_id})
    message = here.ended(msg_id)
    copy = there.get(message["result"]["job_status"].rpartition("/")[2])
    assert copy["attachments"] == message["attachments"]
    digest = hashlib.sha256(content).hexdigest()
    assert copy["attachments"]["cat.jpg"]["sha256"] == digest
    first, second = (
        one.folder(m["msg_id"]) / "attach/cat.jpg"
        for one, m in ((here, message), (there, copy))
    )
    assert first.samefile(second)
    assert second.read_bytes() == content
    there.ok("delete_message", {"msg_id": copy["msg_id"]})
    assert first.read_bytes() == content


def test_a_dup_to_a_queue_that_is_not_there_is_refused_in_the_ancestors_words(queues):
    here, _ = queues
    for name in ("nowhere", "../t", "t/que", ".", "no where"):
        answer, _ = asked(here, f"dup 0-X-{name}")
        assert answer == f"fail couldn't connect to queue - {name}"
    for url in ("http://h:1/q/x", "https://h/q/x"):
        answer, _ = asked(here, f"dup 0-X-{url}")
        assert answer == "fail couldn't connect to queue - relay"


def test_a_dup_to_a_url_goes_to_the_queue_relay(queues):
    here, _ = queues
    with running_queue(here.root.path, name="relay") as relay:
        answer, _ = asked(here, "dup 700-X-https://far:3333/q/x")
        copy = relay.get(answer.rpartition("/")[2])
        assert answer.startswith("ok http://127.0.0.1:3333/q/relay/")
        assert copy["dest"] == "https://far:3333/q/x"


@pytest.mark.parametrize(("flag", "status"), [("down", "DOWN"), ("pause", "PAUSE")])
def test_a_dup_to_a_queue_that_is_not_up_is_refused(queues, flag, status):
    here, there = queues
    path = getattr(there.root, flag)("other")
    path.touch()
    try:
        answer, _ = asked(here, "dup 0-X-other")
    finally:
        path.unlink()
    assert answer == f"fail dup failed - status: {status}"


def test_a_dup_to_a_queue_whose_process_is_dead_is_refused(queues):
    here, _ = queues
    with running_queue(here.root.path, "obey", "dead") as dead:
        dead.crash()
        answer, _ = asked(here, "dup 0-X-dead")
        assert answer == "fail couldn't connect to queue - dead"


@pytest.mark.parametrize(
    "line",
    ["dup", "dup ", "dup 0", "dup 0-X", "dup 0-X-", "dup x-X-other", "dup -1-X-t"],
)
def test_a_dup_that_cannot_be_read_is_refused_and_the_script_goes_on(queues, line):
    answer, _ = asked(queues[0], line)
    assert answer.startswith("fail dup failed - cannot read ")
    assert answer.endswith("say: dup SECONDS-X-DEST")


def test_a_dest_may_hold_dashes_and_a_text_may_hold_blanks(queues):
    here, _ = queues
    with running_queue(here.root.path, name="with-a-dash"):
        assert asked(here, "dup 0-X-with-a-dash")[0].startswith("ok ")


def test_a_script_that_never_reads_its_answers_does_not_stop_the_queue(queues):
    here, _ = queues
    script = "for n in $(seq 2000); do echo dup 0-X-nowhere; done >&3; echo done >&3"
    assert here.run(param1=script)["state"] == "done"
    script = "exec 4<&-; echo dup 0-X-nowhere >&3; sleep 0.1; echo done >&3"
    assert here.run(param1=script)["state"] == "done"


def test_a_dup_asked_right_before_the_end_is_still_done(queues):
    here, there = queues
    before = there.ask("num_messages")["que"]
    script = "{ echo dup 600-X-other; echo done; } >&3"
    assert here.run(param1=script)["state"] == "done"
    assert there.ask("num_messages")["que"] == before + 1


def test_many_dups_of_one_script_are_answered_one_line_each(queues):
    here, _ = queues
    script = (
        "for n in 1 2 3 4 5; do echo dup 900-X-other >&3; read -r w id <&4; "
        "[ $w = ok ] && echo $id; done | sort -u | wc -l > count; "
        'echo "done $(cat count)" >&3'
    )
    assert here.run(param1=script)["status"] == "done - 5"
