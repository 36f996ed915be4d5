"""An idempotency key is its user's: the same user's whichever way they come, and no other's."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import subprocess
import sys
import time
from itertools import cycle

import pytest
from harness.checkout import CHECKOUT
from harness.processes import acting_as, only_root, open_to_others
from harness.queues import RunningQueue, kept, running_queue, short
from harness.waiting import wait_until
from harness.web_server import served

from rq.access import tokens
from rq.access.attempt_tokens import VARIABLE, AttemptTokens, of_attempt
from rq.access.roles import Role
from rq.access.tokens import Token
from rq.layout import Root
from rq.spool import memory, offline

pytestmark = pytest.mark.process

ANN, BOB = 65533, 65532  # users without a name
BEFORE = """
from rq.queues.control import idempotency
idempotency._key = lambda asker, text, said: idempotency.Key(text, text, None)
idempotency.preparer_in = lambda *_: idempotency.Preparer(None, True)
"""
BEFORE_TXN = """
from rq.queues.control import idempotency, transactions
idempotency.key_of_txn = lambda asker, request: idempotency.Key(*[request["key"]] * 3)
idempotency.preparer_in = lambda *_: idempotency.Preparer(None, True)
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


def token(web, name, user="", role=Role.PRODUCER):
    """Return the header of a new token."""
    secret = tokens.new_secret()
    row = Token(
        name=name, sha256=tokens.digest_of(secret), role=role,
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


@pytest.mark.slow
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


# ---- what a relay, and a job on Spark, send under


def mesg(queue, **fields):
    return {"mesg": json.dumps({"dest": queue, **fields})}


def prepared(web, queue, key, header):
    """Do what the relay of another host does first; return the message's id."""
    fields = mesg(queue, _method="prep", _key=key)
    return short(web.post(f"/q/{queue}/new_message", fields, **header).json[1])


def committed(web, queue, msg_id, key, header):
    fields = {"_method": "commit", "_key": key, "msg_id": msg_id}
    return web.post(f"/q/{queue}/{msg_id}", {**fields, "x_format": "json"}, **header)


FORGERIES = {
    "form": lambda web, queue, key, header: web.post(
        f"/q/{queue}/new_message", mesg(queue, _key=key), **header
    ),
    "prepared": lambda web, queue, key, header: committed(
        web, queue, prepared(web, queue, key, header), key, header
    ),
    "api": lambda web, queue, key, header: web.ask(
        "POST", f"/api/v1/queues/{queue}/messages", b'{"param1": "x"}',
        Content_Type="application/json", Idempotency_Key=key, **header,
    ),
    "lines": lambda web, queue, key, header: web.ask(
        "POST", f"/api/v1/queues/{queue}/messages/bulk",
        json.dumps({"_key": key}).encode(), Content_Type="application/x-ndjson",
        **header,
    ),
}  # fmt: skip


@pytest.mark.parametrize("door", FORGERIES)
def test_who_reads_the_key_of_a_relay_s_message_cannot_be_first_with_it(web, door):
    """Were it to get hold of the key: it stands in files, and in journals."""
    queue = web.queue("exit 1", num_workers=0)
    host, eve = token(web, f"host-{door}"), token(web, f"eve-{door}")
    begun = prepared(web, queue, "relay/0123", host)
    forged = FORGERIES[door](web, queue, "relay/0123", eve)
    assert forged.status in (200, 201), forged
    assert committed(web, queue, begun, "relay/0123", host).json == [
        "ok",
        "msg commited",
    ]
    reply = web.daemon.ask_queue(queue, "get_message_state", {"msg_id": begun})
    assert reply[1] == "que"
    again = committed(web, queue, begun, "relay/0123", host)
    assert again.json == ["ok", "msg already commited"]


def test_a_relay_with_a_renewed_token_is_known_and_so_is_what_came_before(web):
    queue = web.queue("exit 1", num_workers=0)
    begun = prepared(web, queue, "relay/in-doubt", token(web, "north"))
    tokens.revoke(web.daemon.root, "north")
    renewed, other = token(web, "north"), token(web, "north-2", "token:north")
    for header in (renewed, other):
        assert prepared(web, queue, "relay/in-doubt", header) == begun
    # The version before remembered what it accepted as RQ's own user does, whose it was.
    asked = {"dest": queue, "_key": "relay/before"}
    _, ours, _ = web.daemon.ask_queue(queue, "prep_message", asked)
    theirs = prepared(web, queue, "relay/before", other)
    assert theirs != short(ours)  # RQ's own relay prepares it, and commits it alone
    _, old = web.daemon.ask_queue(queue, "create_message", {**asked, "_key": "relay/b"})
    assert prepared(web, queue, "relay/b", renewed) == short(old)


def test_the_key_of_a_relay_is_remembered_for_a_month_with_its_user_too():
    month = memory.RELAY_KEY_SECONDS
    assert memory.key_seconds("relay/1") == memory.key_seconds("token:x\trelay/1")
    assert memory.key_seconds("ann\tmine") < memory.key_seconds("ann\trelay/1") == month


def opened(web, queue, key, header):
    place = f"/api/v1/queues/{queue}/txn"
    kind = {"Content_Type": "application/json"}
    body = json.dumps({"key": key}).encode()
    answer = web.ask("POST", place, body, **kind, **header)
    assert answer.status in (200, 201), answer
    return answer.json


def test_who_guesses_the_key_of_the_next_batch_cannot_send_it_empty(web):
    """Keys of Spark's batches are counted; one that is committed counts as sent."""
    queue = web.queue("exit 1", num_workers=0)
    key = "spark/0b5f/8"
    forged = opened(web, queue, key, token(web, "eve"))
    place = f"/api/v1/queues/{queue}/txn/{forged['txn']}/commit"
    web.ask("POST", place, b'{"ids": []}', Content_Type="application/json")
    driver = token(web, "driver")
    true = opened(web, queue, key, driver)
    assert (true["state"], true["key"]) == ("open", key)
    assert true["txn"] != forged["txn"]
    assert opened(web, queue, key, driver)["txn"] == true["txn"]
    reply = web.daemon.ask_queue(queue, "open_txn", {"key": "spark/0b5f/9"})
    assert opened(web, queue, "spark/0b5f/9", driver)["txn"] != reply[1]["txn"]


@only_root
def test_the_key_of_a_transaction_is_its_user_s_also_after_a_crash(tmp_path):
    open_to_others(tmp_path)
    old = RunningQueue(tmp_path / "root", "t", "obey", num_workers=0)
    old.prelude = BEFORE_TXN
    with kept(old):
        first = txn_of(old, 0, "old")
    with running_queue(tmp_path / "root", num_workers=0) as queue:
        assert txn_of(queue, ANN, "old") == txn_of(queue, 0, "old") == first
        ours = [txn_of(queue, uid, "mine") for uid in (0, ANN, BOB)]
        assert len(set(ours)) == 3
        queue.crash()
        queue.start()
        assert [txn_of(queue, uid, "mine") for uid in (0, ANN, BOB)] == ours


def txn_of(queue, uid, key):
    with acting_as(uid, 0):
        return queue.ok("open_txn", {"key": key})["txn"]


# ---- what a producer prepares


def attach(web, queue, msg_id, header, data=b"mill"):
    place = f"/q/{queue}/{msg_id}/attach/new"
    files = {"filedata": ("a.txt", data)}
    return web.multipart(place, {"x_format": "json"}, files, **header)


def put(web, queue, msg_id, header):
    return web.ask(
        "PUT", f"/q/{queue}/{msg_id}/attach/a.txt", b"mill",
        X_RQ_SHA256=hashlib.sha256(b"mill").hexdigest(), Content_Range="bytes 0-3/4",
        **header,
    )  # fmt: skip


CHANGES = {
    "commit": lambda web, queue, msg_id, header: committed(
        web, queue, msg_id, "mill", header
    ),
    "commit by the API": lambda web, queue, msg_id, header: web.ask(
        "POST", f"/api/v1/queues/{queue}/messages/{msg_id}/commit", **header
    ),
    "attach": attach,
    "attach in pieces": put,
    "detach": lambda web, queue, msg_id, header: web.post(
        f"/q/{queue}/{msg_id}/attach/a.txt",
        {"_method": "delete", "x_format": "json"}, **header,
    ),
}  # fmt: skip


def restarted(web, queue, kill):
    """Let a queue be owned by another process, which knows what the disk says."""
    daemon = web.daemon
    before = daemon.child(queue)["pid"]
    if kill:
        daemon.kill(queue)
    else:
        daemon.ask("restart_queue", queue)
    wait_until(lambda: daemon.until_up(queue)["pid"] != before)
    wait_until(lambda: web.get(f"/q/{queue}.json").status == 200)


def is_done(answer):
    words = answer.json
    return answer.status < 300 and (not isinstance(words, list) or words[0] == "ok")


@pytest.mark.parametrize(
    ("change", "key"), [*zip(CHANGES, cycle([None, "relay/0123"]), strict=False)]
)
def test_what_one_producer_prepares_no_other_one_changes(web, change, key):
    queue = web.queue("exit 1", num_workers=0)
    shop, mill = token(web, f"{queue}-shop"), token(web, f"{queue}-mill")
    begun = prepared(web, queue, key, shop)
    assert is_done(attach(web, queue, begun, shop, b"shop"))
    if key:
        restarted(web, queue, kill=True)
    answer = CHANGES[change](web, queue, begun, mill)
    assert not is_done(answer)
    assert "prepared by another user" in answer.text
    # The web asks so before it takes a file in.
    asked = {"msg_id": begun, "_preparer": "mill"}
    reply = web.daemon.ask_queue(queue, "get_message_state", asked)
    assert "prepared by another user" in reply[1]
    view = web.daemon.ask_queue(queue, "get_message", {"msg_id": begun})[1]
    assert view["state"] == "prep"
    assert view["_attachments"]["a.txt"]["md5"] == hashlib.md5(b"shop").hexdigest()
    assert view["by"] == f"token:{queue}-shop"
    assert "shop" not in str({**view, "_attachments": "", "by": ""})
    operator = token(web, f"{queue}-ops", role=Role.OPERATOR)
    assert is_done(CHANGES[change](web, queue, begun, operator))
    if change not in ("commit", "commit by the API"):
        assert is_done(committed(web, queue, begun, key or "shop", shop))
    view = web.daemon.ask_queue(queue, "get_message", {"msg_id": begun})[1]
    assert view["state"] == "que"
    lines = web.daemon.root.queue(queue).path.glob("journal/*")
    assert not any(
        b"_preparer" in path.read_bytes() for path in lines if path.is_file()
    )


def member(web, queue, txn):
    """Return the message that a transaction holds."""
    return web.daemon.ask_queue(queue, "show_txn", {"txn": txn, "limit": 1})[1]["ids"][
        0
    ]


def of_txn(verb, body=b"{}", kind="application/json"):
    return lambda web, queue, txn, header: web.ask(
        "POST", f"/api/v1/queues/{queue}/txn/{txn}/{verb}", body, Content_Type=kind,
        **header,
    )  # fmt: skip


OF_TXN = {
    "add": of_txn("messages", b'{"param1": "mill"}'),
    "rows": of_txn("rows", b'{"param1": "mill"}\n', "application/x-ndjson"),
    "commit": of_txn("commit", b'{"ids": []}'),
    "abort": of_txn("abort"),
    "attach to its message": lambda web, queue, txn, header: attach(
        web, queue, member(web, queue, txn), header
    ),
    "abort on its page": lambda web, queue, txn, header: web.post(
        f"/q/{queue}/txn/{txn}", {"_method": "abort", "x_format": "json"}, **header
    ),
    "follow": lambda web, queue, txn, header: web.ask(
        "POST", f"/api/v1/queues/{queue}/txn", json.dumps({"of": txn}).encode(),
        Content_Type="application/json", **header,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "how"),
    [*zip(OF_TXN, cycle(["with a key", "kill -9", "stop"]), strict=False)],
)
def test_the_transaction_of_one_producer_no_other_one_changes(web, change, how):
    queue = web.queue("exit 1", num_workers=0)
    shop, mill = token(web, f"{queue}-shop"), token(web, f"{queue}-mill")
    txn = opened(web, queue, None if how == "stop" else "mine", shop)["txn"]
    assert is_done(OF_TXN["add"](web, queue, txn, shop))
    if how != "with a key":
        restarted(web, queue, kill="kill" in how)
    answer = OF_TXN[change](web, queue, txn, mill)
    assert not is_done(answer)
    assert "prepared by another user" in answer.text
    held = web.daemon.ask_queue(queue, "show_txn", {"txn": txn})[1]
    assert (held["state"], held["messages"]) == ("open", 1)
    whose = shop if how == "stop" else token(web, f"{queue}-o", role=Role.OPERATOR)
    assert is_done(OF_TXN[change](web, queue, txn, whose))


def test_who_is_an_operator_no_more_goes_on_with_what_it_has_begun(web):
    queue = web.queue("exit 1", num_workers=0)
    before = token(web, f"{queue}-a", f"{queue}-ann", Role.OPERATOR)
    now = token(web, f"{queue}-b", f"{queue}-ann")
    for key in ("mine", None):
        txn = opened(web, queue, key, before)["txn"]
        begun = prepared(web, queue, key, before)
        restarted(web, queue, kill=True)
        assert is_done(attach(web, queue, begun, now))
        assert is_done(committed(web, queue, begun, key or "other", now))
        assert key is None or opened(web, queue, key, now)["txn"] == txn
        assert is_done(OF_TXN["add"](web, queue, txn, now))
        assert is_done(OF_TXN["abort"](web, queue, txn, now))


def test_what_rq_itself_prepares_no_producer_meets_or_changes(web):
    queue = web.queue("exit 1", num_workers=0)
    eve, key = token(web, f"{queue}-eve"), "spark/0b5f/8"
    ask = web.daemon.ask_queue
    begun = short(ask(queue, "prep_message", {"dest": queue, "_key": "relay/7"})[1])
    assert not is_done(committed(web, queue, begun, "relay/7", eve))
    txn = ask(queue, "open_txn", {"key": key})[1]["txn"]
    assert not is_done(OF_TXN["abort"](web, queue, txn, eve))
    assert ask(queue, "commit_txn", {"txn": txn, "ids": []})[0] == "ok"
    restarted(web, queue, kill=False)
    assert opened(web, queue, key, eve)["txn"] != txn
    assert ask(queue, "open_txn", {"key": key})[1]["txn"] == txn
