"""Who sent a message: what each door writes, and that no field of a request says it."""

import contextlib
import json
import os

import pytest
from harness.kills import site_at
from harness.processes import acting_as, only_root, open_to_others
from harness.queues import RunningQueue, running_queue, short
from harness.timers import timers, write
from harness.waiting import wait_until
from harness.web_server import served

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token
from rq.proc import users
from rq.rpc import client

pytestmark = pytest.mark.process

ANN, BOB = 65533, 65532  # users without a name
OURS = users.kernel_name(os.getuid())
LIES = {"by": "eve", "_by": "eve", "_preparer": "eve", "_key_of": "eve"}


@pytest.fixture
def queue(tmp_path):
    open_to_others(tmp_path)
    with running_queue(tmp_path / "root", num_workers=0) as queue:
        yield queue


def sender(queue, msg_id):
    return queue.get(msg_id).get("by")


def asked(queue, uid, word, **request):
    with acting_as(uid, 0):
        return queue.ok(word, request)


def transaction(queue, uid, rows=False):
    """Accept two messages of a transaction; return their ids."""
    txn = asked(queue, uid, "open_txn")["txn"]
    row = {"param1": "x", **({} if rows else LIES)}
    word = "add_rows" if rows else "prepare_txn"
    said = asked(queue, uid, word, txn=txn, messages=[row] * 2)
    more = {"ids": [], "rows": [said["rows"]]} if rows else {"ids": said}
    asked(queue, uid, "commit_txn", txn=txn, **more)
    wait_until(lambda: queue.ask("num_messages")["que"] == 2)
    return [row["msg_id"] for row in queue.ok("list", {"state": "que"})]


@only_root
def test_the_socket_writes_whom_the_kernel_names_also_after_a_crash(queue):
    new = {"dest": "t", **LIES}
    ids = {uid: short(asked(queue, uid, "create_message", **new)) for uid in (ANN, BOB)}
    begun = short(asked(queue, ANN, "prep_message", **new))
    asked(queue, 0, "commit_message", msg_id=begun)
    ours = queue.send(param1="x")
    many = asked(queue, BOB, "create_messages", messages=[new])
    expected = {
        ids[ANN]: f"uid:{ANN}",
        ids[BOB]: f"uid:{BOB}",
        begun: f"uid:{ANN}",
        ours: OURS,
        many[0][1]: f"uid:{BOB}",
    }
    assert {i: sender(queue, i) for i in expected} == expected
    for path in queue.dir.path.glob("journal/index*"):
        path.unlink()
    queue.crash()
    queue.start()
    assert {i: sender(queue, i) for i in expected} == expected
    queue.restart()
    assert {i: sender(queue, i) for i in expected} == expected


@only_root
@pytest.mark.parametrize("rows", [False, True])
def test_messages_of_a_transaction_say_who_has_prepared_them(queue, rows):
    ids = transaction(queue, ANN, rows)
    assert [sender(queue, i) for i in ids] == [f"uid:{ANN}"] * 2


@only_root
def test_rq_s_own_user_says_for_whom_it_sends(queue):
    assert sender(queue, queue.send(_by="token:shop")) == "token:shop"
    assert sender(queue, queue.send(_by="")) is None  # RQ itself
    said = queue.refused("create_message", {"dest": "t", "_by": "a\tb"})
    assert said == "_by is not the name of a user: 'a\\tb'"


@only_root
def test_a_folder_in_new_is_of_the_user_whose_file_it_holds(queue):
    for uid, name in ((os.getuid(), "ours"), (ANN, "theirs")):
        place = queue.dir.path / f".{name}"
        place.mkdir()
        (place / "msg").write_text(json.dumps({"dest": "t", "src": name, **LIES}))
        os.chown(place / "msg", uid, 0)
        place.rename(queue.dir.path / "new" / name)
    queue.ask("wake")
    wait_until(lambda: queue.ask("num_messages")["que"] == 2)
    rows = [queue.get(row["msg_id"]) for row in queue.ok("list", {"state": "que"})]
    found = {row["src"]: row["by"] for row in rows}
    assert found == {"ours": OURS, "theirs": f"uid:{ANN}"}


@only_root
def test_a_clone_is_of_who_clones_and_an_edit_of_who_has_sent(queue):
    sent = short(asked(queue, ANN, "create_message", dest="t"))
    queue.configure(num_workers=1)
    queue.restart()
    queue.ended(sent)
    copy = short(asked(queue, BOB, "clone_message", msg_id=sent))
    edited = asked(queue, BOB, "edit_message", msg_id=sent, changes={"param1": "y"})
    assert sender(queue, copy) == f"uid:{BOB}"
    assert sender(queue, short(edited)) == f"uid:{ANN}"


@contextlib.contextmanager
def pair(path, script, name):
    """Run a queue with a script, and another one that starts none."""
    a = RunningQueue(path, "a", script)
    b = RunningQueue(path, name, "#!/bin/sh\nexit 1\n", num_workers=0)
    try:
        a.start()
        b.start()
        yield a, b
        b.close()
        a.close()
    finally:
        a.kill()
        b.kill()


WAYS = {
    "dup": "echo dup 0-X-b >&3; read -r _ <&4; echo done >&3",
    "forward": "echo forward b >&3",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("files", [False, True])
def test_what_a_script_sends_on_is_of_who_has_sent_its_message(tmp_path, way, files):
    with pair(tmp_path, f"#!/bin/sh\n{WAYS[way]}\n", "b") as (a, b):
        begun = short(a.ok("prep_message", {"dest": "a", "_by": "token:shop"}))
        if files:
            (tmp_path / "file").write_text("x")
            path = str(tmp_path / "file")
            a.ok("attach_message", {"msg_id": begun, "pathname": path})
        a.ok("commit_message", {"msg_id": begun})
        a.ended(begun)
        wait_until(lambda: b.ask("num_messages")["que"] == 1)
        [row] = b.ok("list", {"state": "que"})
        copy = b.get(row["msg_id"])
        assert (copy["by"], bool(copy.get("attachments"))) == ("token:shop", files)


def test_a_webhook_is_of_who_has_sent_its_message(tmp_path):
    with pair(tmp_path, "#!/bin/sh\necho done >&3\n", "webhook") as (queue, hook):
        told = {"post_run_webhook": ["https://h.example/x"], "_by": "token:shop"}
        queue.ended(queue.send(**told))
        wait_until(lambda: hook.ask("num_messages")["que"] == 1)
        [row] = hook.ok("list", {"state": "que"})
        assert sender(hook, row["msg_id"]) == "token:shop"


def test_a_timer_is_named_as_one(tmp_path):
    with site_at(tmp_path / "root") as site:
        queue = site.queue("q", num_workers=0)
        queue.start()
        (site.root.path / "timers").mkdir()
        write(site, "often", period=60)
        with timers(site):
            wait_until(lambda: queue.ask("num_messages")["que"] >= 1)
        [row, *_] = client.ask(queue.dir.socket, "list", {"state": "que"})[1]
        got = client.ask(queue.dir.socket, "get_message", row)
        assert got[1]["by"] == "timer:often"


# ---- over the web


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("web") / "root") as web:
        yield web


def header(web, name, user=""):
    secret = tokens.new_secret()
    row = Token(
        name=name, sha256=tokens.digest_of(secret), role=Role.PRODUCER,
        created=0.0, created_by="test", user=user,
    )  # fmt: skip
    tokens.create(web.daemon.root, row)
    return {"Authorization": f"Bearer {secret}"}


def api(web, path, body, header, kind="application/json"):
    data = json.dumps(body).encode()
    answer = web.ask(
        "POST", f"/api/v1/queues/{path}", data, Content_Type=kind, **header
    )
    assert answer.status in (200, 201), answer
    return answer.json


def form(web, queue, header, **fields):
    mesg = json.dumps({"dest": queue, **LIES, **fields})
    answer = web.post(f"/q/{queue}/new_message", {"mesg": mesg}, **header)
    return short(answer.json[1])


def prepared(web, queue, header):
    msg_id = form(web, queue, header, _method="prep")
    fields = {"_method": "commit", "msg_id": msg_id, "x_format": "json", **LIES}
    assert web.post(f"/q/{queue}/{msg_id}", fields, **header).json[0] == "ok"
    return msg_id


def in_transaction(web, queue, header):
    txn = api(web, f"{queue}/txn", {}, header)["txn"]
    ids = api(web, f"{queue}/txn/{txn}/messages", {"param1": "x"}, header)["ids"]
    api(web, f"{queue}/txn/{txn}/commit", {"ids": ids}, header)
    return ids[0]


def line(web, queue, header):
    path, kind = f"{queue}/messages/bulk", "application/x-ndjson"
    return api(web, path, {"param1": "x"}, header, kind)["msg_id"]


WEB = {
    "form": form,
    "prepared": prepared,
    "transaction": in_transaction,
    "lines": line,
    "api": lambda web, queue, header: api(
        web, f"{queue}/messages", {"param1": "x", "by": "eve", "_by": "eve"}, header
    )["msg_id"],
}


@pytest.mark.parametrize("door", WEB)
def test_the_web_writes_whom_it_has_let_in(web, door):
    queue = web.queue("exit 1", num_workers=0)
    found = {
        WEB[door](web, queue, {}): OURS,
        WEB[door](web, queue, header(web, f"shop-{door}")): f"token:shop-{door}",
        WEB[door](web, queue, header(web, f"new-{door}", "ann")): "ann",
    }
    for msg_id, user in found.items():
        path = f"/api/v1/queues/{queue}/messages/{msg_id}"
        assert web.get(path).json["by"] == user


def test_equal_messages_of_two_senders_do_not_run_as_one(tmp_path):
    settings = {"coalesce_params": [1], "num_workers": 0}
    with running_queue(tmp_path / "root", **settings) as queue:
        users = ("token:a", "token:b", "token:a")
        ids = [queue.send(param1="echo done >&3", _by=user) for user in users]
        queue.crash()  # the keys that it compares outlive that
        queue.configure(num_workers=1)
        queue.start()
        said = [queue.ended(msg_id)["status"] for msg_id in ids]
    assert [text.startswith("done - duplicate") for text in said] == [
        False,
        False,
        True,
    ]
