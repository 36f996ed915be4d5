"""Leases over HTTP: who may what, what a script shares, and what no log holds."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest
from harness.leases import API, begun, credentials, leased, pulled, say
from harness.waiting import wait_until
from harness.web_server import served

from rq.access.roles import Role

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("leases")) as found:
        yield found


# ---- rights


def test_only_those_who_work_on_a_queue_lease_from_it(web):
    name = pulled(web)
    web.send(name)
    for role in (Role.VIEWER, Role.PRODUCER):
        asks = credentials(web.daemon.root, f"{role}-{name}", role)
        refused = say(web, "POST", f"{name}/leases", **asks)
        assert (refused.status, refused.json["kind"]) == (403, "not_allowed")
        assert "this needs worker" in refused.json["detail"]
        assert web.get(f"{API}/{name}/leases?wait=0", **asks).status == 403
        assert web.get(f"{API}/{name}/leases", **asks).status == 200
    elsewhere = credentials(
        web.daemon.root, f"else-{name}", Role.WORKER, queues=("other",)
    )
    assert say(web, "POST", f"{name}/leases", **elsewhere).status == 403
    asks = credentials(web.daemon.root, f"worker-{name}", Role.WORKER, queues=(name,))
    [lease] = say(web, "POST", f"{name}/leases", **asks).json["leases"]
    [row] = web.get(f"{API}/{name}/leases", **asks).json["leases"]
    assert row["by"] == f"token:worker-{name}"
    assert say(web, "POST", f"{name}/messages", **asks).status == 403
    place = f"{name}/leases/{lease['token']}/finish"
    assert say(web, "POST", place, {"word": "done"}, **asks).status == 200


def test_a_worker_forwards_and_copies_only_to_where_it_may_send(web):
    name, audit = pulled(web), web.queue("echo done >&3")
    for number in range(2):
        web.send(name, param1=str(number))
    asks = credentials(
        web.daemon.root, f"w-{name}", Role.WORKER, queues=(name,), sends=(audit,)
    )
    first, second = (lease["token"] for lease in leased(web, name, count=2))
    other = web.queue("echo done >&3")
    ends = [
        {"token": first, "word": "forward", "dest": other},
        {"token": first, "word": "done", "dups": [{"dest": "cleaner"}]},
        {"token": first, "word": "forward", "dest": "http://h:1/q/x"},
        {"token": first, "word": "forward", "dest": audit},
        {"token": second, "word": "done", "dups": [{"dest": audit}]},
    ]
    answer = say(web, "POST", f"{name}/leases/finish", {"finishes": ends}, **asks)
    results = answer.json["results"]
    assert [row["ok"] for row in results] == [False, False, False, True, True]
    assert results[0]["kind"] == "other_queue"
    assert f"w-{name} may not send to {other}" in results[0]["text"]
    wait_until(lambda: web.get(f"/q/{audit}.json").json["done_size"] == 2)


def test_a_worker_of_some_queues_reaches_no_other_host(web):
    """The relay carries a message to any address, so a queue of it to which one may send
    would lead beyond all limits."""
    name = pulled(web)
    web.queue("exec sleep 60", "relay", num_workers=0)
    for number in range(3):
        web.send(name, param1=str(number))
    held = [lease["token"] for lease in leased(web, name, count=3)]
    limited, free = (
        credentials(
            web.daemon.root, f"{who}-{name}", Role.WORKER, queues=queues, sends=("re*",)
        )
        for who, queues in (("limited", (name,)), ("free", ("*",)))
    )
    away = "http://192.0.2.1:3333/q/x"
    ends = [
        {"token": held[0], "word": "forward", "dest": away},
        {"token": held[1], "word": "done", "dups": [{"dest": away}]},
    ]
    for end in ends:
        place = f"{name}/leases/finish"
        [refused] = say(web, "POST", place, {"finishes": [end]}, **limited).json[
            "results"
        ]
        assert (refused["ok"], refused["kind"]) == (False, "other_queue")
        assert f"limited-{name} may not send to {away}" in refused["text"]
        [ended] = say(web, "POST", place, {"finishes": [end]}, **free).json["results"]
        assert ended["ok"], ended
    dest = {"dest": "relay"}
    place = f"{name}/leases/{held[2]}/finish"
    assert say(web, "POST", place, {"word": "forward", **dest}, **limited).status == 200


# ---- the script


def test_the_script_is_shared_only_if_its_queue_says_so(web):
    directory = web.daemon.define("shares", {"pull": {"share_script": True}})
    web.daemon.link("shares", directory)
    web.daemon.until_up("shares")
    answer = web.get(f"{API}/shares/script")
    assert (answer.status, answer.kind) == (200, "application/x-tar")
    tag = answer.headers["etag"]
    assert tag == f'"{hashlib.sha256(answer.body).hexdigest()}"'
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
        assert tar.getnames() == ["run"]
    assert web.get(f"{API}/shares/script", If_None_Match=tag).status == 304
    asks = credentials(web.daemon.root, "looks-at-script", Role.VIEWER)
    assert web.get(f"{API}/shares/script", **asks).status == 403
    name = pulled(web)
    refused = web.get(f"{API}/{name}/script")
    assert (refused.status, refused.json["kind"]) == (409, "refused")
    assert "give the agent one with --script DIR, or say" in refused.json["detail"]
    assert "share_script" in refused.json["detail"]
    refused = web.get(f"{API}/{web.queue('echo done >&3')}/script")
    assert 'hands out no leases: set "pull"' in refused.json["detail"]


def test_a_queue_without_a_script_says_that_agents_bring_theirs(web):
    directory = web.daemon.define("bare", {"pull": {"share_script": True}})
    (directory / "run").unlink()
    web.daemon.link("bare", directory)
    web.daemon.until_up("bare")
    refused = web.get(f"{API}/bare/script")
    said = "queue bare has no script: give the agent one with --script DIR"
    assert (refused.status, refused.json["detail"]) == (409, said)


# ---- secrets


def test_no_log_holds_a_token(web):
    name = pulled(web)
    lease = begun(web, name)
    secret = lease["token"].rpartition("~")[2]
    place = f"{name}/leases/{lease['token']}/finish"
    asks = credentials(web.daemon.root, f"none-{name}", Role.VIEWER)
    assert say(web, "POST", place, {"word": "done"}, **asks).status == 403
    assert web.ask("PUT", f"{API}/{place}").status == 405
    assert say(web, "POST", place, {"word": "done"}).status == 200
    log = web.daemon.root.log
    text = "".join(file.read_text() for file in log.iterdir() if file.is_file())
    assert f"{secret[:4]}…" in text
    assert secret not in text
    listed = web.get(f"{API}/{name}/leases").text
    assert secret not in listed
