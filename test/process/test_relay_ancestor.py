"""The ancestor's receivers and senders, with their texts."""

import json

import pytest
from harness.ancestor_http import OldSender, old_receiver
from harness.relay import pair_at
from harness.waiting import wait_until

from rq import cli

pytestmark = pytest.mark.process

FILES = {
    "notes.txt": b"hello\n",
    "a+b 100.c": b"plus",
    "b.bin": bytes(range(256)) * 100,
}
OF_OTHER_SYSTEMS = [
    " [1] 100%25 #2?.txt",
    "a;b`c`&$d",
    "\"quoted\" 'name'",
    "u\u0308ber.txt",  # decomposed: it stays so
    "\U0001f468\u200d\U0001f469.png",
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with pair_at(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@pytest.fixture
def old():
    with old_receiver() as old:
        yield old


def test_an_old_receiver_gets_its_message(pair, old):
    msg_id = pair.send(FILES, dest=old.url, param1="x", src="me")
    ended = pair.relayed(msg_id)
    assert ended["state"] == "relayed", ended
    [short] = old.delivered()
    assert ended["result"]["job_status"] == f"{old.url}/{short}"
    assert old.files[short] == FILES
    got = old.messages[short]
    assert (got["dest"], got["param1"], got["src"]) == (old.url, "x", "me")
    assert (got["count"], got["max_count"]) == (1, 15)
    assert not {"due", "force_remote", "msg_id"} & set(got)


@pytest.mark.parametrize("name", ["a;b", "`id`", "[1].txt", "x" * 201])
def test_an_old_receiver_is_sent_no_name_that_its_shell_could_run(pair, old, name):
    ended = pair.relayed(pair.send({"a.txt": b"a", name: b"b"}, dest=old.url))
    assert ended["state"] == "err", ended
    told = ended["result"]["job_status"]
    assert "has a Ruby RQ, which hands names of files to a shell" in told
    assert repr(name)[:9] in told
    assert list(old.files.values()) == [{}]
    assert old.delivered() == []


def test_a_receiver_with_this_rq_gets_files_whatever_they_are_called(pair):
    files = dict.fromkeys(OF_OTHER_SYSTEMS, b"cat")
    assert pair.relayed(pair.send(files))["state"] == "relayed"
    [got] = pair.received()
    assert sorted(got["attachments"]) == sorted(OF_OTHER_SYSTEMS)


@pytest.mark.parametrize("step", ["attach", "commit"])
def test_an_old_receiver_is_asked_before_it_is_sent_anything_again(pair, old, step):
    old.lose.append(step)
    ended = pair.relayed(pair.send(FILES, dest=old.url))
    assert ended["state"] == "relayed", ended
    assert len(old.delivered()) == len(old.states) == 1


def test_a_lost_answer_to_prepare_leaves_one_message_in_prep_and_delivers_one(
    pair, old
):
    old.lose.append("prepare")
    assert pair.relayed(pair.send(dest=old.url))["state"] == "relayed"
    assert (len(old.delivered()), len(old.states)) == (1, 2)


def test_an_old_receiver_that_is_down_is_not_taken_for_one_that_has_forgotten(
    pair, old
):
    def goes_down():
        old.is_down = True

    old.lose.append("commit")
    old.then = goes_down
    msg_id = pair.send(dest=old.url)
    wait_until(lambda: not old.lose)
    pair.until_told(msg_id, "the queue is DOWN there")
    old.is_down = False
    assert pair.relayed(msg_id)["state"] == "relayed"
    assert len(old.states) == 1


def test_what_an_old_receiver_may_have_had_is_in_doubt_and_not_sent_again(pair, old):
    old.lose.append("commit")
    old.then = old.states.clear  # it ran, and the cleaner was there
    msg_id = pair.send(dest=old.url)
    wait_until(lambda: not old.lose)
    ended = pair.relayed(msg_id)
    assert ended["state"] == "err"
    assert ended["status"].startswith("err - in doubt: http://127.0.0.1:")
    assert old.states == {}


@pytest.mark.parametrize("how", ["--arrived", "--again"])
def test_a_person_says_what_became_of_a_message_in_doubt(pair, old, how, capfd):
    old.lose.append("commit")
    old.then = old.states.clear
    msg_id = pair.send(FILES, dest=old.url)
    wait_until(lambda: not old.lose)
    assert pair.relayed(msg_id)["state"] == "err"
    root = ["--root", str(pair.sender.root.path), "relay"]
    pair.sender.ok("check")
    assert cli.main([*root, "ls", "--json"]) == 0
    [listed] = [o for o in json.loads(capfd.readouterr().out) if o["msg_id"] == msg_id]
    assert (listed["in_doubt"], listed["step"]) == (True, "ask")
    assert listed["answer"].startswith("404")
    assert old.url.startswith(listed["peer"])
    assert cli.main([*root, "resolve", msg_id, how]) == 0
    if how == "--arrived":
        assert pair.sender.get(msg_id)["acknowledged"]
    else:
        assert pair.relayed(msg_id)["state"] == "relayed"
    assert len(old.delivered()) == (how == "--again")


def test_a_retry_by_hand_does_not_wait_for_the_host(pair, old, capfd):
    old.lose += ["prepare"] * 3
    msg_id = pair.send(dest=old.url)
    root = ["--root", str(pair.sender.root.path), "relay", "retry"]
    wait_until(lambda: pair.sender.get(msg_id)["attempt"])

    def relayed():
        if pair.sender.state(msg_id) == "que":
            pair.sender.ok("check")
            cli.main([*root, msg_id])
        return pair.sender.state(msg_id) == "relayed"

    wait_until(relayed, 60)


# ---- as a sender


@pytest.mark.parametrize("lose", ["", "attach", "commit"])
def test_an_old_sender_delivers_once(pair, tmp_path, lose):
    before = len(pair.received())
    sender = OldSender(pair.web, tmp_path / "relay_id")
    said = sender.attempt("sink", FILES, lose)
    for _ in range(3):
        if said.startswith("relayed"):
            break
        said = sender.attempt("sink", FILES)
    assert said.startswith("relayed http://127.0.0.1:"), said
    assert len(pair.received()) == before + 1


@pytest.mark.parametrize("how", ["removed", "removed, and the queue killed"])
def test_an_old_sender_that_did_not_hear_of_its_commit_sends_nothing_anew(
    pair, tmp_path, how
):
    before = {one["msg_id"] for one in pair.received()}
    sender = OldSender(pair.web, tmp_path / "relay_id")
    assert sender.attempt("sink", FILES, "commit").startswith("resend 0-")
    [got] = (one for one in pair.received() if one["msg_id"] not in before)
    pair.sink.until(got["msg_id"], "done", seconds=60)
    pair.sink.ok("delete_message", {"msg_id": got["msg_id"]})
    if how != "removed":
        pair.sink.crash()
        pair.sink.start()
    said = sender.attempt("sink", FILES)
    assert said.startswith("relayed http://127.0.0.1:"), said
    assert {one["msg_id"] for one in pair.received()} == before
