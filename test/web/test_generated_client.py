"""A client that openapi-python-client makes of the document: it has every operation, and
speaks with a real server."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
from types import SimpleNamespace

import pytest
from harness.waiting import wait_until
from harness.web_server import served

from rq.web.api.table import ROWS

pytestmark = pytest.mark.system

PACKAGE = "rq_generated"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("rq"), allow_new_queue=True) as found:
        found.queue('echo done "$RQ_PARAM1" >&3', "demo")
        found.queue("echo err no >&3", "fails")
        yield found


@pytest.fixture(scope="module")
def api(web, tmp_path_factory):
    """Give what was generated: a client, and a function for each operation."""
    pytest.importorskip("openapi_python_client")
    place = tmp_path_factory.mktemp("generated")
    document, settings = place / "openapi.json", place / "settings.yml"
    document.write_bytes(web.get("/api/v1/openapi.json").body)
    settings.write_text("post_hooks: []\n")
    where = ["--path", document, "--output-path", place / PACKAGE, "--config", settings]
    words = [
        sys.executable,
        "-m",
        "openapi_python_client",
        "generate",
        "--meta",
        "none",
    ]
    done = subprocess.run([*words, *where], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "will not be generated" not in done.stdout, done.stdout
    sys.path.insert(0, str(place))
    try:
        with Generated(web.port) as generated:
            yield generated
    finally:
        sys.path.remove(str(place))
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]


class Generated:
    """The generated client, and its models."""

    def __init__(self, port):
        made = importlib.import_module(PACKAGE)
        self.models = importlib.import_module(f"{PACKAGE}.models")
        self.types = importlib.import_module(f"{PACKAGE}.types")
        self._client = made.Client(base_url=f"http://127.0.0.1:{port}/api/v1")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._client.get_httpx_client().close()

    def function(self, name):
        words = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
        return importlib.import_module(f"{PACKAGE}.api.default.{words}")

    def call(self, name, *path, **given):
        return self.function(name).sync(*path, client=self._client, **given)

    def bytes_of(self, name, *path, **given):
        reply = self.function(name).sync_detailed(*path, client=self._client, **given)
        return SimpleNamespace(status=int(reply.status_code), body=reply.content)


def test_every_operation_is_generated(api):
    for row in ROWS:
        assert callable(api.function(row.operation_id).sync_detailed)


def test_a_message_is_sent_and_waited_for(api):
    new = api.models.NewMessage.from_dict({"param1": "x", "own": [1]})
    sent = api.call("sendMessage", "demo", body=new, idempotency_key="order 1")
    again = api.call("sendMessage", "demo", body=new, idempotency_key="order 1")
    assert again.msg_id == sent.msg_id
    shown = api.call("getMessage", "demo", sent.msg_id, wait=30.0)
    assert (shown.state, shown.param1, shown.dest) == ("done", "x", "demo")
    assert (shown.max_count, shown["own"]) == (15, [1])
    assert shown.result.job_status == "x"
    log = api.bytes_of("getLog", "demo", sent.msg_id)
    assert (log.status, b"RQ END" in log.body) == (200, True)


def test_a_problem_has_a_kind_of_the_enum(api):
    new = api.models.NewMessage.from_dict({"max_cuont": 1})
    wrong = api.call("sendMessage", "demo", body=new)
    assert wrong.kind is api.models.ProblemKind.BAD_INPUT
    gone = api.call("getMessage", "demo", "20260102.0304.05.006.7")
    assert gone.kind is api.models.ProblemKind.NO_SUCH_MESSAGE


def test_many_messages_are_sent_and_listed(api):
    rows = [{"param1": "a"}, {"max_cuont": 1}, {"param1": "b"}]
    body = api.models.NewMessages.from_dict({"messages": rows})
    results = api.call("sendMessages", "fails", body=body).results
    assert [row.line for row in results] == [1, 2, 3]
    assert str(results[1].kind) == "bad_input"
    for row in (results[0], results[2]):
        end = api.call("getMessage", "fails", row.msg_id, wait=30.0)
        assert end.state == "err"
    err = api.models.ListMessagesState.ERR
    found = api.call("listMessages", "fails", state=err, param1="b")
    assert [row.msg_id for row in found.messages] == [results[2].msg_id]
    acted = api.call("retryMessage", "fails", results[2].msg_id)
    assert acted.msg_id == results[2].msg_id


def test_a_message_with_a_file_is_prepared_and_committed(api):
    new = api.models.NewMessage.from_dict({})
    msg_id = api.call("prepareMessage", "demo", body=new).msg_id
    data = b"0123456789" * 1000
    file = api.types.File(payload=io.BytesIO(data))
    attached = api.call("putAttachment", "demo", msg_id, "a b.txt", body=file)
    assert (attached.attached, attached.have) == (True, len(data))
    [row] = api.call("listAttachments", "demo", msg_id).attachments
    assert (row.name, row.size) == ("a b.txt", len(data))
    api.call("commitMessage", "demo", msg_id)
    assert api.call("getMessage", "demo", msg_id, wait=30.0).state == "done"
    part = api.bytes_of("getAttachment", "demo", msg_id, "a b.txt", range_="bytes=2-4")
    assert (part.status, part.body) == (206, b"234")


def test_queues_are_made_paused_and_counted(api):
    settings = api.models.NewQueue.from_dict({"name": "made", "pull": {}})
    assert api.call("createQueue", body=settings).name == "made"
    why = api.models.Pause.from_dict({"why": "no"})
    assert api.call("pauseQueue", "made", body=why).paused.why == "no"
    counts = {row.name: row for row in api.call("countMessages").queues}
    assert counts["made"].counts["que"] == 0
    body = api.models.QueueChanges.from_dict({"nice": 5})
    assert api.call("changeQueue", "made", body=body).config["nice"] == 5
    assert api.call("deleteQueue", "made").name == "made"
    names = lambda: [row.name for row in api.call("listQueues").queues]  # noqa: E731
    wait_until(lambda: "made" not in names())
