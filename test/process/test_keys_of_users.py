"""An idempotency key is its user's: the same user's whichever way they come, and no other's."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time

import pytest
from harness.checkout import CHECKOUT
from harness.processes import acting_as, only_root, open_to_others
from harness.queues import RunningQueue, kept, running_queue, short
from harness.web_server import served

from rq import offline
from rq.access import tokens
from rq.access.attempt_tokens import VARIABLE, AttemptTokens, of_attempt
from rq.access.roles import Role
from rq.access.tokens import Token
from rq.layout import Root

pytestmark = pytest.mark.process

ANN, BOB = 65533, 65532  # users without a name
BEFORE = """
from rq.queues.control import idempotency
idempotency._key = lambda asker, text, said: idempotency.Key(text, text, None)
"""


@pytest.fixture
def queue(tmp_path):
    open_to_others(tmp_path)
    with running_queue(tmp_path / "root", num_workers=0) as queue:
        yield queue


def send(queue, uid, key="mine", word="create_message", **more):
    """Send a message of a user; return its id."""
    with acting_as(uid, 0):
        reply = queue.ask(word, {"dest": "t", "_key": key, **more})
    assert reply[0] == "ok", reply
    return short(reply[1])


def all_of(queue, key="mine"):
    return [send(queue, uid, key) for uid in (0, ANN, BOB)]


@only_root
@pytest.mark.parametrize("how", ["kill -9", "stop", "kill -9, no index"])
def test_the_same_text_of_three_users_is_three_messages_also_after_a_crash(queue, how):
    first = all_of(queue)
    assert len(set(first)) == 3
    assert all_of(queue) == first
    queue.crash() if how.startswith("kill -9") else queue.stop()
    if how == "kill -9, no index":
        for path in queue.dir.path.glob("journal/index*"):
            path.unlink()
    queue.start()
    assert all_of(queue) == first
    assert queue.ask("num_messages")["que"] == 3


@only_root
def test_what_one_user_has_prepared_another_neither_sees_nor_commits(queue):
    ours, theirs = (send(queue, uid, word="prep_message") for uid in (ANN, BOB))
    assert ours != theirs
    queue.crash()
    queue.start()
    assert send(queue, ANN, word="prep_message") == ours
    assert queue.ok("commit_message", {"msg_id": ours}) == "msg commited"
    with acting_as(ANN, 0):
        again = {"msg_id": ours, "_key": "mine"}
        assert queue.ok("commit_message", again) == "msg already commited"
    assert send(queue, ANN) == ours
    assert send(queue, BOB) not in (ours, theirs)


@only_root
def test_keys_of_the_version_before_meet_all_users(tmp_path):
    open_to_others(tmp_path)
    old = RunningQueue(tmp_path / "root", "t", "obey", num_workers=0)
    old.prelude = BEFORE
    with kept(old):
        first = send(old, 0)
        begun = send(old, 0, "begun", "prep_message")
        owed = send(old, 0, "0123abcd/7/0")
    with running_queue(tmp_path / "root", num_workers=0) as queue:
        assert all_of(queue) == [first] * 3
        assert send(queue, ANN, "begun", "prep_message") == begun
        assert send(queue, ANN, "0123abcd/7/0") != owed
        queue.crash()
        queue.start()
        assert all_of(queue) == [first] * 3


@only_root
@pytest.mark.parametrize("key", ["0123abcd/7/0", "relay/1", "timer/t/1.0", "notice/1"])
def test_no_user_takes_a_key_under_which_rq_itself_sends(queue, key):
    forged = send(queue, ANN, key)
    true = send(queue, 0, key)
    assert forged != true
    assert send(queue, BOB, key) not in (forged, true)
    assert send(queue, 0, key) == true


@only_root
def test_whose_a_key_is_is_believed_from_root_alone(queue):
    ours = send(queue, ANN)
    assert send(queue, 0, _key_of=f"uid:{ANN}") == ours
    assert send(queue, BOB, _key_of=f"uid:{ANN}") != ours
    assert "_key_of" not in queue.get(ours)
    for name in ("", "a\tb", 7, "x" * 201):
        asked = {"dest": "t", "_key": "mine", "_key_of": name}
        assert "is not the name of a user" in queue.refused("create_message", asked)


# ---- over the web


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("web") / "root") as web:
        yield web


def token(web, name, user=""):
    """Return the header of a new token."""
    secret = tokens.new_secret()
    row = Token(
        name=name, sha256=tokens.digest_of(secret), role=Role.PRODUCER,
        created=time.time(), created_by="test", user=user,
    )  # fmt: skip
    tokens.create(web.daemon.root, row)
    return {"Authorization": f"Bearer {secret}"}


def post(web, queue, header=None, **more):
    body = json.dumps({"param1": "x", **more}).encode()
    kind = {"Content_Type": "application/json", "Idempotency_Key": "mine"}
    path = f"/api/v1/queues/{queue}/messages"
    answer = web.ask("POST", path, body, **kind, **(header or {}))
    assert answer.status == 201, answer
    return answer.json["msg_id"]


def test_a_renewed_token_is_the_same_user(web):
    queue = web.queue("exit 1", num_workers=0)
    first = post(web, queue, token(web, "ci"))
    tokens.revoke(web.daemon.root, "ci")
    assert post(web, queue, token(web, "ci")) == first
    assert post(web, queue, token(web, "ci-2", "token:ci")) == first


def test_one_user_s_key_is_not_another_s_over_the_web(web):
    queue = web.queue("exit 1", num_workers=0)
    first = post(web, queue, token(web, "shop"))
    assert post(web, queue, token(web, "mill")) != first
    forged = post(web, queue, token(web, "forger"), _key_of="token:shop")
    assert forged != first


def test_one_user_by_http_by_a_token_by_the_socket_and_by_the_command_line(web):
    queue = web.queue("exit 1", num_workers=0)
    first = post(web, queue)  # whom the kernel names
    asked = {"dest": queue, "param1": "x", "_key": "mine"}
    reply = web.daemon.ask_queue(queue, "create_message", asked)
    assert short(reply[1]) == first
    name = pwd.getpwuid(os.getuid()).pw_name
    assert post(web, queue, token(web, "a", name)) == first
    assert post(web, queue, token(web, "b", name)) == first
    said = subprocess.run(
        [sys.executable, "-m", "rq.cli", "--root", web.daemon.root.path,
         "send", queue, "-p1", "x", "--key", "mine", "--id-only"],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == first
    mesg = json.dumps({**asked, "_method": "prep"})
    form = web.post(f"/q/{queue}/new_message", {"mesg": mesg})
    assert form.json[2] == "commited"
    lines = json.dumps({"param1": "x", "_key": "mine"}).encode() + b"\n"
    kind = {"Content_Type": "application/x-ndjson"}
    path = f"/api/v1/queues/{queue}/messages/bulk"
    answer = web.ask("POST", path, lines, **kind)
    assert first in answer.text, answer


def test_the_keys_of_relays_are_theirs_with_whatever_token_they_come(web):
    queue = web.queue("exit 1", num_workers=0)
    mesg = json.dumps({"dest": queue, "_method": "prep", "_key": "relay/in-doubt"})

    def prepared(header):
        answer = web.post(f"/q/{queue}/new_message", {"mesg": mesg}, **header)
        return answer.json[1]

    assert prepared(token(web, "old")) == prepared(token(web, "new"))


def test_the_next_attempt_of_a_script_has_another_token_and_is_the_same_user(tmp_path):
    given = AttemptTokens(Root(tmp_path), "t")
    users = []
    for _ in range(2):
        secret = given.begin("message", "mailer")[VARIABLE]
        users.append(of_attempt(Root(tmp_path), secret).user)
        given.end("message")
    assert users == ["mailer"] * 2


@pytest.mark.parametrize("from_disk", [False, True])
def test_the_key_of_a_message_in_prep_is_shown_to_no_reader(queue, from_disk):
    """A producer who reads it could send his own message under it; then what another RQ
    relays here would be known as accepted, and be lost."""
    key = f"relay/{'ab' * 16}"
    far = {"orig_msg_id": "http://far/q/relay/20260102.0304.05.006.7"}
    begun = send(queue, 0, key, "prep_message", **far)
    shown = queue.get(begun)
    if from_disk:
        shown = offline.message(queue.root, "t", begun, "it is silent")
    assert shown["state"] == "prep"
    assert key not in str(shown)
    assert send(queue, 0, key, "prep_message", **far) == begun
