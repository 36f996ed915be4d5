"""Every kind of failure, through every door: what whoever asked is told of it.

A stand-in for an owner refuses each request with the failure that is its turn; the web,
the command line, the door of Spark and the sockets are RQ's own.
"""

import asyncio
import contextlib
import threading
from dataclasses import dataclass

import pytest
from harness.cli import rq
from harness.sockets import old_ask
from harness.web_server import BROWSER, web_alone

from rq.access.roles import Role
from rq.access.sockets import policy
from rq.config import files
from rq.kinds import HEADER, PASSING, URN, Kind
from rq.layout import Root
from rq.outbound.exchange import Reply
from rq.relay import answers
from rq.relay.two_phase import Heard
from rq.rpc import client, loop_client, wire
from rq.rpc import server as control
from rq.spark import queue_door
from rq.spark.queue_door import Door, Target

QUEUE = "mail"
ID = "20260102.0304.05.006.7"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What a failure is at each door."""

    status: int  # of HTTP
    code: int  # of rq
    passes: bool  # asked again, it may succeed
    heard: Heard = Heard.REFUSED  # by a relay


AGAIN = {"passes": True, "heard": Heard.SILENT}
AT_DOORS = {
    Kind.BAD_INPUT: Doors(status=422, code=2, passes=False),
    Kind.KEY_REUSED: Doors(status=422, code=2, passes=False),
    Kind.TOO_LARGE: Doors(status=413, code=2, passes=False),
    Kind.NO_SUCH_QUEUE: Doors(status=404, code=3, passes=False),
    Kind.NO_SUCH_MESSAGE: Doors(status=404, code=3, passes=False, heard=Heard.UNKNOWN),
    Kind.WRONG_STATE: Doors(status=409, code=4, passes=False),
    Kind.NOT_UNIQUE: Doors(status=409, code=4, passes=False),
    Kind.CHANGED: Doors(status=412, code=4, passes=False),
    Kind.LEASE_OVER: Doors(status=409, code=4, passes=False),
    Kind.LEASE_FORGOTTEN: Doors(status=410, code=4, passes=False),
    Kind.WRONG_OFFSET: Doors(status=409, code=4, passes=False),
    Kind.ALREADY_COMMITTED: Doors(
        status=409, code=4, passes=False, heard=Heard.COMMITTED
    ),
    Kind.NOT_WHOLE: Doors(status=409, code=4, passes=False, heard=Heard.DAMAGED),
    Kind.UNREADABLE: Doors(status=409, code=4, passes=False, heard=Heard.UNKNOWN),
    Kind.REFUSED: Doors(status=409, code=4, passes=False),
    Kind.BUSY: Doors(status=503, code=4, **AGAIN),
    Kind.DOWN: Doors(status=503, code=4, **AGAIN),
    Kind.CLOSED: Doors(status=503, code=4, **AGAIN),
    Kind.NO_ROOM: Doors(status=503, code=4, **AGAIN),
    Kind.DISK_FAILED: Doors(status=503, code=4, **AGAIN),
    Kind.CANNOT_READ: Doors(status=503, code=1, **AGAIN),
    Kind.TOO_OFTEN: Doors(status=429, code=4, **AGAIN),
    Kind.LOGIN_NEEDED: Doors(status=401, code=4, passes=False),
    Kind.NOT_ALLOWED: Doors(status=403, code=4, passes=False),
    Kind.OTHER_QUEUE: Doors(status=403, code=4, passes=False),
    Kind.WRONG_HOST: Doors(status=421, code=4, passes=False),
    Kind.UNREACHABLE: Doors(status=503, code=6, **AGAIN),
    Kind.OUTCOME_UNKNOWN: Doors(status=504, code=7, **AGAIN),
    Kind.BAD_CONFIG: Doors(status=500, code=1, passes=False),
    Kind.DAMAGED: Doors(status=500, code=9, passes=False),
    Kind.NO_JAVA: Doors(status=500, code=3, passes=False),
    Kind.INTERNAL: Doors(status=500, code=1, **AGAIN),
}


class Refuser:
    """Answers for a queue, and refuses everything; without a kind it talks nonsense."""

    def __init__(self, root):
        self.kind = Kind.REFUSED
        self.asked = 0
        self.loop = asyncio.new_event_loop()
        self._sock = client.listen(root.queue(QUEUE).socket)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def text(self):
        return f"a sentence about {self.kind}"

    async def answer(self, _payload, _asker):
        self.asked += 1
        if self.kind is None:
            return ["ok", "nonsense"]
        raise wire.error_of(self.kind, self.text)

    def _serve(self):
        asyncio.set_event_loop(self.loop)
        server = control.Server(self._sock, policy(Role.ADMIN, None), self.answer)
        self.loop.call_soon(server.start)
        self.loop.run_forever()
        server.close()
        self.loop.run_until_complete(asyncio.sleep(0.05))
        self.loop.close()

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    path = tmp_path_factory.mktemp("root")
    with web_alone(path) as client_of_web:
        client_of_web.root = Root(path)
        yield client_of_web


@pytest.fixture(scope="module")
def refuser(web):
    queue = web.root.queue(QUEUE)
    files.make_queue(queue, {"name": QUEUE, "script": "/bin/true"}, {})
    with contextlib.closing(Refuser(web.root)) as there:
        yield there


@pytest.fixture(params=Kind)
def kind(request, refuser):
    refuser.kind = request.param
    return request.param


def test_the_table_has_a_row_for_each_kind_and_agrees_with_the_code():
    assert set(AT_DOORS) == set(Kind)
    assert {kind for kind in Kind if AT_DOORS[kind].passes} == PASSING


# ---- the socket


def test_the_socket_tells_the_kind_to_who_asked_for_it(web, kind, refuser):
    socket = web.root.queue(QUEUE).socket
    assert client.ask(socket, "detail") == ["fail", refuser.text, kind]
    assert old_ask(socket, "detail") == ["fail", refuser.text]


def test_a_process_that_must_not_wait_hears_the_same(web, kind, refuser):
    socket = web.root.queue(QUEUE).socket
    reply = asyncio.run(loop_client.ask(socket, "detail"))
    assert wire.failure_in(reply).kind is kind


# ---- HTTP


def test_http_answers_programs_with_status_type_and_header(web, kind, refuser):
    answer = web.get(f"/q/{QUEUE}.json")
    assert answer.status == AT_DOORS[kind].status
    assert answer.headers[HEADER.lower()] == kind
    assert answer.kind == "application/problem+json"
    told = answer.json
    assert (told["type"], told["status"], told["detail"]) == (
        f"{URN}{kind}",
        answer.status,
        refuser.text,
    )
    assert ("retry-after" in answer.headers) == (answer.status in (429, 503, 504))


def test_what_nobody_foresaw_is_a_failure_of_rq_for_http_too(web, refuser):
    refuser.kind = None
    answer = web.get(f"/q/{QUEUE}.json")
    assert answer.status == AT_DOORS[Kind.INTERNAL].status
    assert answer.headers.get(HEADER.lower()) == Kind.INTERNAL
    assert answer.json["type"] == f"{URN}{Kind.INTERNAL}"
    assert "the web's log says more" in answer.json["detail"]


def test_http_answers_browsers_with_a_page(web, kind, refuser):
    fields = {"_method": "retry", "x_format": "html"}
    answer = web.post(f"/q/{QUEUE}/{ID}", fields, Accept=BROWSER)
    assert answer.status == AT_DOORS[kind].status
    assert answer.headers[HEADER.lower()] == kind
    assert answer.kind == "text/html"
    assert refuser.text in answer.text


def test_an_action_answers_as_the_ancestor_did_and_says_the_kind(web, kind, refuser):
    fields = {"_method": "retry", "x_format": "json"}
    answer = web.post(f"/q/{QUEUE}/{ID}", fields)
    assert (answer.status, answer.json) == (200, ["fail", refuser.text])
    assert answer.headers[HEADER.lower()] == kind


def test_the_rule_that_no_queues_are_made_over_http_has_a_kind(web):
    form = web.get("/new_queue")
    made = web.post("/new_queue", {"queue[name]": "new", "queue[script]": "/bin/true"})
    for answer in (form, made):
        assert (answer.status, answer.headers.get(HEADER.lower())) == (
            AT_DOORS[Kind.NOT_ALLOWED].status,
            Kind.NOT_ALLOWED,
        )


def test_a_message_that_is_refused_is_answered_as_the_ancestor_did(web, kind, refuser):
    answer = web.post(f"/q/{QUEUE}/new_message", {"mesg": '{"dest": "mail"}'})
    assert answer.headers[HEADER.lower()] == kind
    if kind is Kind.DOWN:
        assert answer.status == 503
    else:
        assert (answer.status, answer.json) == (200, ["fail", refuser.text])


# ---- the relay


def test_a_relay_goes_by_the_kind(kind, refuser):
    reply = Reply(200, b'["fail","words of tomorrow"]', {HEADER.lower(): str(kind)})
    assert answers.prepared(reply).heard is AT_DOORS[kind].heard
    # What another user prepared, since the token was changed, is begun again.
    is_another_s = kind is Kind.NOT_ALLOWED
    heard = Heard.UNKNOWN if is_another_s else AT_DOORS[kind].heard
    assert answers.committed(reply).heard is heard
    assert answers.attached(reply, "").heard is heard


# ---- the command line


def test_the_command_line_exits_with_the_code_of_the_kind(web, kind, refuser):
    done = rq("send", QUEUE, root=web.root.path)
    assert done.returncode == AT_DOORS[kind].code
    told = refuser.text if kind is not Kind.DOWN else f"rq queue up {QUEUE}"
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ---- Spark


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(queue_door.back_off, "delay", lambda *_: 0.3)


@pytest.mark.parametrize("is_local", [True, False])
def test_the_door_of_spark_asks_again_what_may_pass(
    web, kind, refuser, is_local, no_pause
):
    url = None if is_local else f"http://127.0.0.1:{web.port}"
    root = str(web.root.path) if is_local else None
    door = Door(Target(QUEUE, url, root, timeout=0.5))
    before = refuser.asked
    with contextlib.closing(door), pytest.raises(Exception, match=refuser.text) as told:
        door.show("no-txn")
    assert told.value.kind is kind
    again = AT_DOORS[kind].passes or kind is Kind.REFUSED
    assert (refuser.asked - before > 1) is again
