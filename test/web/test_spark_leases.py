"""What a stream of Spark holds of a queue, over the queue's socket and over HTTP: finished
when Spark has committed, given up when somebody cancels it. Without Spark."""

from __future__ import annotations

import pickle

import pytest
from harness.leases import credentials, pulled
from harness.waiting import wait_until
from harness.web_server import served

from rq.access.roles import Role
from rq.errors import BadConfig, BadInput, RQError
from rq.spark import lease_holder, lease_options
from rq.spark.lease_holder import Holder, Taken

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("streams")) as found:
        yield found


@pytest.fixture(scope="module")
def token_file(web, tmp_path_factory):
    """Give a file with a token that may lease, and nothing else."""
    header = credentials(web.daemon.root, "stream", Role.WORKER)["Authorization"]
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(header.removeprefix("Bearer "))
    path.chmod(0o600)
    return path


@pytest.fixture(params=["socket", "http"])
def holder(request, web, token_file, tmp_path, monkeypatch):
    """Give a function that holds messages of a queue, as a query of Spark does."""
    monkeypatch.setattr(lease_holder, "_LOOK", 0.2)
    made = []

    def hold(name, **options):
        about = {"queue": name, "claims": str(tmp_path / "claims"), **options}
        if request.param == "http":
            about["url"] = f"http://127.0.0.1:{web.port}/"
            about["token_file"] = str(token_file)
        else:
            about["root"] = str(web.daemon.root.path)
        for one in made:
            one.close()
        made[:] = [Holder(lease_options.parse_options(about))]
        return made[0]

    yield hold
    for one in made:
        one.close()


def ids(grants):
    return [grant["msg_id"] for grant in grants]


def test_what_is_held_is_done_when_it_is_settled(web, holder):
    name = pulled(web)
    sent = [web.send(name) for _ in range(3)]
    held = holder(name)
    assert held.queue.waiting() == 3
    assert held.claim(1, 2) == Taken(2, 2)
    assert held.claim(1, 2) == Taken(2, 0)
    assert ids(held.held(1)) == sent[:2]
    assert [web.state(name, one) for one in sent] == ["run", "run", "que"]
    held.settle(1)
    assert [web.state(name, one) for one in sent] == ["done", "done", "que"]


def test_who_begins_again_holds_what_was_held_before(web, holder):
    name = pulled(web)
    sent = [web.send(name) for _ in range(2)]
    holder(name).claim(1, 5)
    again = holder(name)
    assert ids(again.held(1)) == sent
    again.settle(1)
    assert {web.state(name, one) for one in sent} == {"done"}


@pytest.mark.parametrize("holder", ["http"], indirect=True)
def test_a_web_that_is_killed_is_asked_again(web, holder):
    name = pulled(web)
    sent = web.send(name)
    held = holder(name)
    held.claim(1, 1)
    web.daemon.kill("web")
    held.settle(1)
    web.daemon.until_up("web")
    wait_until(lambda: web.state(name, sent) == "done")


def test_a_cancel_of_what_a_stream_holds_is_heard(web, holder, capfd):
    name = pulled(web)
    sent = [web.send(name) for _ in range(2)]
    held = holder(name)
    held.claim(1, 2)
    cancel(web, name, sent[0])
    wait_until(lambda: web.state(name, sent[0]) == "err")
    assert ids(held.held(1)) == sent[1:]  # who reads the batch again
    held.settle(1)
    assert [web.state(name, one) for one in sent] == ["err", "done"]
    assert sent[0] in capfd.readouterr().err


def test_what_was_cancelled_before_spark_plans_its_batch_is_not_in_it(
    web, holder, monkeypatch, capfd
):
    monkeypatch.setattr(lease_holder, "_LOOK", 60.0)
    name = pulled(web)
    sent = [web.send(name) for _ in range(2)]
    held = holder(name)
    held.claim(1, 2)
    cancel(web, name, sent[0])
    assert ids(held.held(1)) == sent[1:]
    assert web.state(name, sent[0]) == "err"
    assert "rq: it is not read: cancelled by" in capfd.readouterr().err


def test_what_was_cancelled_and_is_committed_all_the_same_is_told(
    web, holder, monkeypatch, capfd
):
    monkeypatch.setattr(lease_holder, "_LOOK", 60.0)
    name = pulled(web)
    sent = web.send(name)
    held = holder(name)
    held.claim(1, 1)
    cancel(web, name, sent)
    held.settle(1)
    assert web.state(name, sent) == "err"
    told = f"rq: committed: {sent} was cancelled, and is in err"
    assert told in capfd.readouterr().err


def cancel(web, name, msg_id):
    reply = web.daemon.ask_queue(name, "cancel_message", {"msg_id": msg_id})
    assert reply[0] == "ok", reply


# ---- secrets


def options(web, token_file, **more):
    about = {"queue": "q", "claims": "/claims", "token_file": str(token_file)}
    url = f"http://127.0.0.1:{web.port}/"
    return lease_options.parse_options({**about, "url": url, **more})


def test_no_secret_travels_with_the_options_of_a_stream(web, token_file):
    secret = token_file.read_bytes()
    assert secret not in pickle.dumps(options(web, token_file))


def test_a_password_in_a_url_is_refused(web, token_file):
    with pytest.raises(BadInput, match="token_file"):
        options(web, token_file, url="http://me:secret@127.0.0.1:1/")


def test_a_token_does_not_go_over_plain_http(web, token_file):
    far = options(web, token_file, url="http://192.0.2.1:9/")
    with pytest.raises(BadConfig, match="over plain HTTP"):
        lease_options.way(far).detail()


def test_a_token_that_others_can_read_is_refused(web, tmp_path):
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o644)
    with pytest.raises(BadConfig, match="chmod 600"):
        lease_options.way(options(web, path))


def test_a_token_that_may_not_lease_is_refused_at_once(web, tmp_path):
    name = pulled(web)
    header = credentials(web.daemon.root, "looker", Role.VIEWER)["Authorization"]
    path = tmp_path / "token"
    path.write_text(header.removeprefix("Bearer "))
    path.chmod(0o600)
    about = options(web, path, queue=name, claims=str(tmp_path / "claims"))
    held = Holder(about)
    try:
        with pytest.raises(RQError, match="this needs worker"):
            held.claim(1, 1)
    finally:
        held.close()


def test_a_stream_that_cannot_begin_leaves_its_claims_to_the_next(web, tmp_path):
    claims = str(tmp_path / "claims")
    wrong = options(web, tmp_path / "none", claims=claims)
    for _ in range(2):
        with pytest.raises(BadConfig, match="cannot be read"):
            Holder(wrong)
