"""What the OpenAPI document says holds: schemathesis sends what it allows, and what not.

Every operation has a recipe here: a request about live messages that is done. Without one,
or without a status 2xx, its test fails.
"""

from __future__ import annotations

import json
import uuid

import pytest
import schemathesis
from harness.checkout import CHECKOUT
from harness.index import fill
from harness.waiting import wait_until
from harness.web_server import served
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from rq.web.api.examples import EXAMPLES
from rq.web.api.table import ROWS

pytestmark = pytest.mark.system

FEW = 5  # requests of each kind for an operation
LONGEST_WAIT = 60  # seconds that a request may ask to be held for
load_all_checks()
HELD = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]
CHECKED = CHECKS.get_by_names(HELD)
REFUSED = CHECKS.get_by_names([*HELD, "negative_data_rejection"])
GOOD, BAD = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


SHARES = {"pull": {"share_script": True}}
JSON, LINES = "application/json", "application/x-ndjson"


@schemathesis.serializer(LINES, "application/jsonl")
def as_lines(context, value):
    """Return what schemathesis made up as lines."""
    values = value if isinstance(value, list) else [value]
    return value if isinstance(value, bytes) else b"\n".join(map(to_json, values))


def to_json(value):
    return json.dumps(value, default=repr).encode()


class World:
    """An RQ with messages in every state, and the document of its operations."""

    def __init__(self, web):
        self.web = web
        self.base = f"http://127.0.0.1:{web.port}/api/v1"
        for name, script in (("done", "echo done >&3"), ("err", "echo err no >&3")):
            web.queue(script, name, on_slow={"queue": "done", "seconds": 600})
        web.queue("exec sleep 600", "run", num_workers=100)
        web.queue("exec sleep 600", "que", num_workers=0)
        web.queue("exec sleep 600", "batch", batch={"max": 5, "wait": 0})
        web.queue("exit 1", "pull", num_workers=0, pull={})
        web.daemon.link("shares", web.daemon.define("shares", SHARES))
        web.daemon.until_up("shares")
        web.daemon.link("flow", CHECKOUT / "rq/bundled/flow")
        web.daemon.until_up("flow")
        yearly = {"cron": "@yearly", "msg": {"dest": "done"}}
        (web.daemon.root.timers / "yearly.json").write_text(json.dumps(yearly))
        web.daemon.until_up("timers")
        wait_until(lambda: web.get("/api/v1/timers").json["timers"], 60)
        document = web.get("/api/v1/openapi.json").json
        schema = schemathesis.openapi.from_dict(document)
        every = [found.ok() for found in schema.get_all_operations()]
        self.operations = {one.definition.raw["operationId"]: one for one in every}

    def message(self, state):
        """Return the path of a new message in a state."""
        queue = "batch" if state == "batch" else state.replace("prep", "done")
        mesg = {"dest": queue, "_method": "prep" if state == "prep" else "commit"}
        msg_id = self.web.send(queue, **mesg)
        at = "run" if state == "batch" else state
        wait_until(lambda: self.web.state(queue, msg_id) == at, 30)
        return {"name": queue, "msg_id": msg_id}

    def transaction(self):
        place = "/api/v1/queues/done/txn"
        txn = self.web.ask("POST", place).json["txn"]
        return {"name": "done", "txn": txn}

    def prepared(self):
        """Return the path of a transaction, and a message in it."""
        path = self.transaction()
        place = f"/api/v1/queues/done/txn/{path['txn']}/messages"
        [msg_id] = self.web.ask("POST", place, b"{}", Content_Type=JSON).json["ids"]
        return path, msg_id

    def bulk(self):
        """Return the path of a request that changes many messages."""
        body = to_json({"action": "ack", "filter": {"state": "err"}})
        answer = self.web.ask(
            "POST", "/api/v1/queues/err/bulk", body, Content_Type=JSON
        )
        return {"name": "err", "bulk": answer.json["bulk"]}

    def lease(self):
        """Return the path of a new lease."""
        self.web.send("pull")
        body = {"Content_Type": JSON}
        answer = self.web.ask("POST", "/api/v1/queues/pull/leases", b"{}", **body)
        return {"name": "pull", "token": answer.json["leases"][0]["token"]}

    def flow(self):
        """Return the path of a flow that is sent."""
        nodes = [{"name": "fetch", "dest": "que"}, {"name": "pack", "dest": "err"}]
        body = to_json({"messages": nodes})
        answer = self.web.ask("POST", "/api/v1/flows", body, Content_Type=JSON)
        msg_id = answer.json["msg_id"]
        wait_until(lambda: self.web.state("flow", msg_id) == "done", 30)
        return {"flow": msg_id}

    def call(self, operation, **parts):
        """Send a request and compare its answer with the document; return its status."""
        return self.send(self.operations[operation].Case(**parts), CHECKED)

    def send(self, case, checks):
        wait = (case.query or {}).get("wait")
        if isinstance(wait, int | float) and 1 < wait <= LONGEST_WAIT:
            case.query["wait"] = 1  # which a client would not be held for
        response = case.call(base_url=self.base)
        # A 414 is gunicorn's own: nothing of the request was looked at.
        if response.status_code != 414:
            case.validate_response(response, checks=checks)
        return response.status_code


def about(state, **parts):
    """Return a recipe that needs a message in a state."""
    return lambda world: {"path_parameters": world.message(state), **parts}


def seen(world):
    """Return a recipe about a message that is acknowledged."""
    path = world.message("err")
    place = f"/api/v1/queues/err/messages/{path['msg_id']}/dismiss"
    assert world.web.ask("POST", place).status == 200
    return {"path_parameters": path}


def of_queue(**parts):
    return lambda world: {"path_parameters": {"name": "done"}, **parts}


def first_of_two(world):
    world.message("err"), world.message("err")
    return {"path_parameters": {"name": "err"}, "query": {"state": "err", "limit": 1}}


def commit(world):
    path, msg_id = world.prepared()
    return {"path_parameters": path, "body": {"ids": [msg_id]}, "media_type": JSON}


def of_transaction(**parts):
    return lambda world: {"path_parameters": world.transaction(), **parts}


def of_lease(**parts):
    return lambda world: {"path_parameters": world.lease(), **parts}


def of_leases(make):
    """Return a recipe about a lease that its body names."""

    def recipe(world):
        path = world.lease()
        body = make(path.pop("token"))
        return {"path_parameters": path, "body": body, "media_type": JSON}

    return recipe


def result_file(world):
    return {"path_parameters": {**world.lease(), "file": "a"}, "body": b"x", **BYTES}


def with_file(world):
    """Return the path of a message that is prepared, with a file."""
    path = world.message("prep")
    place = f"/api/v1/queues/done/messages/{path['msg_id']}/attachments/a"
    assert world.web.ask("PUT", place, b"xy").status == 200
    return {"path_parameters": path}


def a_file(**parts):
    def recipe(world):
        path = with_file(world)["path_parameters"]
        return {"path_parameters": {**path, "file": "a"}, **parts}

    return recipe


def spare(**parts):
    """Return a recipe about a queue that nothing else needs."""

    def recipe(world):
        name = world.web.queue("echo done >&3", num_workers=0)
        return {"path_parameters": {"name": name}, **parts}

    return recipe


def of_timer(world):
    return {"path_parameters": {"timer": "yearly"}}


BYTES = {"media_type": "application/octet-stream"}
LOG = {"headers": {"Upload-Offset": "0"}, **BYTES}
ALL_ERR = {"action": "retry", "filter": {"state": "err", "text": "no"}}
PULL, SCRIPT = {"name": "pull"}, {"name": "shares"}
# Where nothing is leased, so that nothing waits for it.
NO_WAITS = {"lease": {"name": "done"}, "listLeases": {"name": "done"}}


def of_flow(**parts):
    """Return a recipe about a flow."""
    return lambda world: {"path_parameters": world.flow(), **parts}


FLOW = {"messages": [{"name": "a", "dest": "done"}]}
RECIPES = {
    "getDocument": lambda world: {},
    "listQueues": lambda world: {},
    "getQueue": of_queue(),
    "countMessages": lambda world: {},
    "createQueue": lambda world: {
        "body": {"name": f"n{uuid.uuid4().hex[:8]}", "pull": {}},
        "media_type": JSON,
    },
    "changeQueue": spare(body={"nice": 5}, media_type=JSON),
    "deleteQueue": spare(),
    "downQueue": spare(),
    "upQueue": spare(),
    "restartQueue": spare(),
    "pauseQueue": spare(body={"why": "no", "until": 4e9}, media_type=JSON),
    "resumeQueue": spare(),
    "sendMessage": of_queue(
        body={"param1": "x"}, media_type=JSON, headers={"Idempotency-Key": "k"}
    ),
    "sendMessages": of_queue(body=b'{}\n{"due": "x"}\n', media_type=LINES),
    "prepareMessage": of_queue(body={"param1": "x"}, media_type=JSON),
    "listAttachments": with_file,
    "getAttachment": a_file(headers={"Range": "bytes=0-0"}),
    "putAttachment": a_file(body=b"x", **BYTES),
    "deleteAttachment": a_file(),
    "listMessages": first_of_two,
    "getMessage": about("err"),
    "listAttempts": about("err"),
    "getLog": about("err"),
    "runMessage": about("que"),
    "setMessage": about("que", body={"priority": 3}, media_type=JSON),
    "holdMessage": about("que", body={"why": "no"}, media_type=JSON),
    "releaseMessage": about("que"),
    "releaseAfter": about("que"),
    "retryMessage": about("err"),
    "cancelMessage": about("run"),
    "cancelBatch": about("batch"),
    "ackMessage": about("err"),
    "unackMessage": seen,
    "dismissMessage": about("err"),
    "reopenMessage": seen,
    "editMessage": about("err", body={"changes": {"param1": "x"}}, media_type=JSON),
    "moveMessage": about("que", body={"to": "done"}, media_type=JSON),
    "deleteMessage": about("done"),
    "commitMessage": about("prep"),
    "cloneMessage": about("done"),
    "beginBulk": of_queue(body=ALL_ERR, media_type=JSON),
    "countBulk": of_queue(body=ALL_ERR, media_type=JSON),
    "listBulks": of_queue(),
    "getBulk": lambda world: {"path_parameters": world.bulk()},
    "cancelBulk": lambda world: {"path_parameters": world.bulk()},
    "listTransactions": of_queue(),
    "openTransaction": of_queue(body={"ttl": 60}, media_type=JSON),
    "getTransaction": of_transaction(),
    "prepareMessages": of_transaction(body={"param1": "x"}, media_type=JSON),
    "addRows": of_transaction(body={"param1": "x"}, media_type=JSON),
    "commitTransaction": commit,
    "abortTransaction": of_transaction(),
    "lease": lambda world: {"path_parameters": PULL, "body": {}, "media_type": JSON},
    "listLeases": lambda world: {"path_parameters": PULL},
    "startLeases": of_leases(lambda token: {"tokens": [token]}),
    "renewLeases": of_leases(lambda token: {"tokens": [token]}),
    "finishLeases": of_leases(lambda t: {"finishes": [{"token": t, "word": "done"}]}),
    "releaseLeases": of_leases(lambda token: {"tokens": [token]}),
    "goOn": of_lease(body={"text": "half"}, media_type=JSON),
    "finishLease": of_lease(body={"word": "done"}, media_type=JSON),
    "releaseLease": of_lease(),
    "putLog": of_lease(body=b"x", **LOG),
    "putResultFile": result_file,
    "sendFlow": lambda world: {"body": FLOW, "media_type": JSON},
    "listFlows": lambda world: {"query": {"limit": 3}},
    "getFlow": of_flow(),
    "rerunFlow": of_flow(body={"from": "pack"}, media_type=JSON),
    "retryFlow": of_flow(body={"cancelled": True}, media_type=JSON),
    "cancelFlow": of_flow(),
    "listNotices": of_queue(),
    "testNotice": of_queue(),
    "listTimers": lambda world: {},
    "getTimer": of_timer,
    "runTimer": of_timer,
    "pauseTimer": of_timer,
    "resumeTimer": of_timer,
    "listRuns": lambda world: {"query": {"since": "2d", "sort": "-ran"}},
    "listFailures": lambda world: {},
    "search": lambda world: {"query": {"words": "order"}},
    "ackTimer": of_timer,
    "getVerdict": lambda world: {},
    "getScript": lambda world: {"path_parameters": SCRIPT},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with served(tmp_path_factory.mktemp("fuzz"), allow_new_queue=True) as web:
        if not web.daemon.root.index.exists():
            fill(web.daemon.root)  # an index without rows answers, too
        yield World(web)


ENDLESS = {"followQueue", "followQueues"}  # test_api_events.py follows a queue
NAMES = [row.operation_id for row in ROWS if row.operation_id not in ENDLESS]


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_does_what_is_right(world, name):
    assert 200 <= world.call(name, **RECIPES[name](world)) < 300


OF_THE_WORLD = {"ids", "tokens", "finishes", "name", "script"}  # no example knows these


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_the_document_is_done(world, name):
    made = RECIPES[name](world)
    body = made["body"] if isinstance(made.get("body"), dict) else {}
    live = {key: value for key, value in body.items() if key in OF_THE_WORLD}
    kept = {
        key: value for key, value in EXAMPLES[name].items() if key not in OF_THE_WORLD
    }
    if name == "createQueue":
        live["script"] = str(world.web.daemon.root.path / "done.script")
    if name == "sendFlow":  # of queues that are there
        live["messages"] = [{**each, "dest": "que"} for each in kept["messages"]]
    made.pop("headers", None)  # a key is of one request
    parts = {**made, "body": {**kept, **live}, "media_type": JSON}
    assert 200 <= world.call(name, **parts) < 300


def fuzzed(world, name, mode, path, checks):
    """Send a few requests that the document allows, or does not."""

    @given(world.operations[name].as_strategy(mode, path_parameters=path))
    @settings(
        max_examples=FEW,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def sent(case):
        world.send(case, checks)

    sent()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_is_allowed_is_answered_as_the_document_says(world, name):
    path = NO_WAITS.get(name) or RECIPES[name](world).get("path_parameters")
    fuzzed(world, name, GOOD, path, CHECKED)
    fuzzed(world, name, GOOD, None, CHECKED)  # of names and ids that are none


@pytest.mark.parametrize(
    "name",
    [row.operation_id for row in ROWS if row.request and row.operation_id in NAMES],
)
def test_what_is_not_allowed_is_refused_as_the_document_says(world, name):
    path = NO_WAITS.get(name) or RECIPES[name](world).get("path_parameters")
    fuzzed(world, name, BAD, path, REFUSED)


def test_no_recipe_is_left_over():
    assert sorted(RECIPES) == sorted(NAMES)
