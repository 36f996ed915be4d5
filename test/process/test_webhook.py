"""How a message has ended is told to a real server: signed, once, and only where allowed."""

import json
import os
import shutil
import socket
import ssl
import stat
import struct
import subprocess
import threading
import time

import pytest
from harness.checkout import CHECKOUT
from harness.queues import RunningQueue, kept, running_queue
from harness.receiver import receiver
from harness.waiting import wait_until

from rq.builtin.webhook import signing

pytestmark = pytest.mark.process

WEBHOOK = CHECKOUT / "rq/bundled/webhook/run"
SECRET = signing.secret_of(b"k" * 32)


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    root = tmp_path_factory.mktemp("webhook")
    settings = json.loads((WEBHOOK.parent / "config.json").read_text())
    settings["num_workers"] = 4
    with running_queue(root, WEBHOOK, "webhook", nice=0, **settings) as queue:
        yield queue


@pytest.fixture(autouse=True)
def allowing(queue):
    (queue.root.config_dir / "webhook.secret").unlink(missing_ok=True)
    allow(queue)


def allow(queue, *hosts, **more):
    queue.root.webhooks.write_text(
        json.dumps({"allow": hosts or ["127.0.0.1"], **more})
    )
    queue.root.webhooks.chmod(0o600)


@pytest.fixture
def hook():
    with receiver() as hook:
        yield hook


STORY = {"msg_id": "http://h:3333/q/t/1", "state": "done", "times": {"ended": "now"}}


def tell(queue, url, **more):
    """Let a story be told once; return the message when that try has ended."""
    story = json.dumps({**STORY, **more})
    msg_id = queue.send(param1=url, param2=story, param3="msg_1")
    wait_until(lambda: queue.get(msg_id)["result"].get("finished"), 60)
    return queue.get(msg_id)


def is_signed(heard, *secrets):
    headers = heard.headers
    stamp = int(headers["webhook-timestamp"])
    wanted = signing.headers(headers["webhook-id"], stamp, heard.body, secrets)
    return abs(time.time() - stamp) < 60 and wanted.items() <= headers.items()


def test_a_story_is_posted_signed_and_then_done(queue, hook):
    told = tell(queue, hook.url("/a?b=c"))
    assert told["status"] == "done - 204 No Content"
    [heard] = hook.heard
    assert heard.path == "/a?b=c"
    assert heard.headers["Content-Type"] == "application/json"
    assert heard.headers["webhook-id"] == "msg_1"
    assert heard.headers["Host"] == f"127.0.0.1:{hook.port}"
    assert heard.told["type"] == "message.done"
    assert heard.told["data"] == STORY
    made = queue.root.webhook_secret
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert is_signed(heard, made.read_text().strip())


def test_two_secrets_sign_while_one_is_changed(queue, hook):
    other = signing.secret_of(b"o" * 24)
    queue.root.webhook_secret.write_text(f"# new\n{other}\n{SECRET}\n")
    queue.root.webhook_secret.chmod(0o600)
    tell(queue, hook.url())
    assert is_signed(hook.heard[0], other, SECRET)


def test_a_url_may_have_a_secret_of_its_own(queue, hook):
    allow(queue, urls={hook.url("/own"): {"secrets": [SECRET]}})
    tell(queue, hook.url("/own/x"))
    tell(queue, hook.url("/owner"))
    assert is_signed(hook.heard[0], SECRET)
    assert not is_signed(hook.heard[1], SECRET)


def test_secrets_that_others_may_read_are_not_used(queue, hook):
    allow(queue, urls={hook.url(): {"secrets": [SECRET]}})
    queue.root.webhooks.chmod(0o640)
    told = tell(queue, hook.url())
    assert told["state"] == "que"
    assert "chmod 600 it" in told["result"]["job_status"]
    assert hook.heard == []


def test_the_ancestors_form_on_request(queue, hook):
    allow(queue, urls={hook.url("/q/"): {"body": "form"}})
    tell(queue, hook.url("/q/x/new_message"), param1="p")
    [heard] = hook.heard
    assert heard.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert heard.body.startswith(b"x_format=json&mesg=")


@pytest.mark.parametrize(
    ("answer", "headers", "state", "text"),
    [
        (500, {}, "que", "-500 Internal Server Error"),
        (503, {"Retry-After": "4711"}, "que", "4711-503 Service Unavailable"),
        (
            410,
            {},
            "err",
            "410 Gone: the receiver wants no more webhooks at this address",
        ),
        (302, {"Location": "/elsewhere"}, "que", "-302 Found"),
        (307, {"Location": "http://localhost:1/"}, "que", "-307 Temporary Redirect"),
    ],
)
def test_other_answers(queue, hook, answer, headers, state, text):
    hook.answers = [(answer, headers)]
    told = tell(queue, hook.url())
    assert told["state"] == state
    assert text in told["result"]["job_status"]
    assert len(hook.heard) == 1


def test_a_redirect_within_the_host_is_followed_with_the_body(queue, hook):
    hook.answers = [(307, {"Location": "/new"})]
    assert tell(queue, hook.url())["state"] == "done"
    assert [one.path for one in hook.heard] == ["/hook", "/new"]
    assert hook.heard[0].body == hook.heard[1].body


def test_a_host_that_redirects_in_circles_is_left(queue, hook):
    hook.answers = [(308, {"Location": "/again"})] * 9
    assert tell(queue, hook.url())["state"] == "que"
    assert len(hook.heard) == 4


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:{port}/",
        "http://127.0.0.1/",
        "https://127.0.0.1:{own}/",
        "//127.0.0.1:{port}/",
        "http://[::1/",
        "gopher://127.0.0.1:{port}/",
    ],
)
def test_a_redirect_to_another_origin_is_not_followed(queue, hook, location):
    with receiver() as other:
        where = location.format(port=other.port, own=hook.port)
        hook.answers = [(307, {"Location": where})]
        told = tell(queue, hook.url())
        assert "-307 Temporary Redirect" in told["result"]["job_status"]
        assert other.heard == []
        assert len(hook.heard) == 1


SECRET_SAID = "the-inner-secret"


@pytest.mark.parametrize(
    "answer",
    [
        f"HTTP/1.1 403 {SECRET_SAID}\r\nContent-Length: 16\r\n\r\n{SECRET_SAID}",
        f"SSH-2.0 {SECRET_SAID}\r\n",
        f"HTTP/1.1 {SECRET_SAID}\r\n\r\n",
    ],
)
def test_nothing_of_what_a_service_answers_is_shown(queue, answer):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            line, _ = server.accept()
            with line:
                line.recv(65536)
                line.sendall(answer.encode())

        thread = threading.Thread(target=serve)
        thread.start()
        told = tell(queue, f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()
    assert SECRET_SAID not in json.dumps(told)
    folder = queue.folder(told["msg_id"])
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not any(SECRET_SAID.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://10.1.2.3/x",
        "http://[::1]:1/x",
        "http://0.0.0.0:1/x",
    ],
)
def test_an_internal_address_is_refused_for_good_and_nothing_is_sent(queue, url):
    told = tell(queue, url)
    assert told["state"] == "err"
    assert "an internal address; config/webhooks.json may allow it" in told["status"]


def test_without_a_word_of_the_operator_not_even_this_host_is_told(queue, hook):
    queue.root.webhooks.unlink()
    assert tell(queue, hook.url())["state"] == "err"
    assert hook.heard == []


def test_a_receiver_that_is_not_there_is_tried_again(queue):
    told = tell(queue, "http://127.0.0.1:1/x")
    assert told["state"] == "que"
    assert "Connection refused" in told["result"]["job_status"]


def test_a_receiver_that_resets_behind_its_answer_has_answered(queue):
    """It would be told again and again what it has taken."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer_and_reset, args=(server,))
        thread.start()
        ended = tell(queue, f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()
    assert ended["state"] == "done", ended["result"]


def answer_and_reset(server):
    sock, _ = server.accept()
    with sock:
        sock.recv(100)  # the rest of the request stays unread
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_slow_receiver_is_left_in_time(queue, hook):
    hook.slow = 5.0
    allow(queue, urls={hook.url(): {"timeout": 0.3}})
    told = tell(queue, hook.url())
    assert "no answer within 0.3 s" in told["result"]["job_status"]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"allowed": []}, "unknown key 'allowed'; did you mean 'allow'?"),
        ({"urls": {"http://127.0.0.1/": {"body": "xml"}}}, "not one of json, form"),
        ({"urls": [1]}, "webhooks.json: "),
    ],
)
def test_settings_that_cannot_be_meant_are_told_and_it_waits(queue, more, text):
    allow(queue, **more)
    told = tell(queue, "http://127.0.0.1/")
    assert told["state"] == "que"
    assert text in told["result"]["job_status"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("needs openssl to make a certificate")
    where = tmp_path_factory.mktemp("tls")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext"
    made = ["-keyout", str(where / "key"), "-out", str(where / "cert")]
    subprocess.run(
        ["openssl", *words.split(), "subjectAltName=IP:127.0.0.1", *made],
        check=True,
        capture_output=True,
    )
    return where


def test_a_certificate_is_verified(queue, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert", certificate / "key")
    with receiver(context) as hook:
        told = tell(queue, hook.url())
        assert "CERTIFICATE_VERIFY_FAILED" in told["result"]["job_status"]
        assert hook.heard == []
        allow(queue, ca=str(certificate / "cert"))
        assert tell(queue, hook.url())["state"] == "done"
        assert len(hook.heard) == 1


def test_the_end_of_a_message_is_told_with_all_that_is_known_of_it(queue, hook):
    text = '#!/bin/sh\n[ -n "$RQ_PARAM1" ] || exit 3\necho done fine >&3\n'
    with running_queue(queue.root.path, text, "t") as other:
        good = other.run(param1="x", post_run_webhook=[hook.url("/1"), hook.url("/2")])
        bad = other.run(post_run_webhook=hook.url("/3"))
        wait_until(lambda: len(hook.heard) == 3)
    told = {one.path: one.told for one in hook.heard}
    data = told["/1"]["data"]
    assert told["/1"]["type"] == "message.done"
    assert told["/1"]["timestamp"] == data["times"]["ended"]
    assert data["msg_id"] == f"http://127.0.0.1:3333/q/t/{good['msg_id']}"
    assert (data["id"], data["queue"]) == (good["msg_id"], "t")
    assert (data["state"], data["status"]) == ("done", "done - fine")
    assert (data["attempt"], data["param1"]) == (1, "x")
    assert (data["outcome"]["cause"], data["outcome"]["exit"]) == ("done", 0)
    failed = told["/3"]["data"]
    assert (failed["id"], failed["state"]) == (bad["msg_id"], "err")
    assert failed["outcome"]["exit"] == 3
    ids = {one.headers["webhook-id"] for one in hook.heard}
    assert len(ids) == 3
    assert not any("." in one for one in ids)


@pytest.mark.slow
def test_an_end_without_an_attempt_of_its_script_is_told_too(queue, hook):
    other = RunningQueue(queue.root.path, "big", "#!/bin/sh\necho done >&3\n")
    other.configure(env_vars={f"V{n}": "x" * 100_000 for n in range(25)})
    with kept(other):
        ended = other.run(post_run_webhook=hook.url())
        wait_until(lambda: hook.heard)
    assert ended["result"]["cause"] == "too_large"
    assert hook.heard[0].told["data"]["outcome"]["cause"] == "too_large"


def test_a_crash_too_many_is_told_too(queue, hook):
    text = "#!/bin/sh\necho run >&3\nsleep 60\n"
    with running_queue(queue.root.path, text, "crashes") as other:
        sent = other.send(max_count=1, post_run_webhook=hook.url())
        other.until(sent, "run")
        other.crash()
        other.start()
        ended = other.ended(sent)
        wait_until(lambda: hook.heard)
    assert ended["result"]["cause"] == "crash_limit"
    assert hook.heard[0].told["data"]["state"] == "err"


def test_a_story_too_large_for_an_environment_is_cut(queue, hook):
    with running_queue(queue.root.path, "#!/bin/sh\necho done >&3\n", "large") as other:
        big = "x" * 100_000
        sent = other.run(param1=big, param2=big, post_run_webhook=hook.url())
        wait_until(lambda: hook.heard)
    data = hook.heard[0].told["data"]
    assert (data["id"], data["cut"]) == (sent["msg_id"], True)
    assert "param1" not in data


def test_riders_tell_nobody(queue, hook):
    text = "#!/bin/sh\nsleep 0.1\necho done >&3\n"
    other = RunningQueue(queue.root.path, "riding", text, coalesce_params=[1])
    flag = queue.root.pause("riding")
    flag.touch()
    with kept(other):
        sent = [other.send(param1="x", post_run_webhook=hook.url()) for _ in range(3)]
        flag.unlink()
        other.ask("wake")
        for one in sent:
            other.ended(one)
        wait_until(lambda: other.ok("detail")["owed"] == 0 and hook.heard)
    assert len(hook.heard) == 1
    assert len(hook.heard[0].told["data"]["dups"]) == 2


def test_a_process_for_each_message_does_as_well(queue, hook):
    with running_queue(queue.root.path, WEBHOOK, "once", nice=0) as once:
        assert tell(once, hook.url())["state"] == "done"


def test_a_dead_receiver_takes_one_worker_and_delays_no_other(queue, hook):
    hook.slow = 100.0
    allow(queue, urls={hook.url(): {"timeout": 100}})
    with receiver() as quick:
        for _ in range(8):
            queue.send(param1=hook.url(), param2="{}")
        wait_until(lambda: len(hook.heard) == 1)
        assert tell(queue, quick.url())["state"] == "done"
        assert len(hook.heard) == 1
        hook.slow = 0.0
        for one in queue.ok("list", {"state": "que"}):
            queue.ask("delete_message", {"msg_id": one["msg_id"]})


def test_the_bundled_script_is_executable():
    assert os.access(WEBHOOK, os.X_OK)
