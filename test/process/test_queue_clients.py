"""Clients that misbehave: an error costs its sender, never the queue or another."""

import contextlib
import json
import os
import socket

import pytest
from harness.queues import running_queue, short
from harness.sockets import old_line
from harness.waiting import wait_until

from rq.kinds import Kind
from rq.rpc import client, wire

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running_queue(tmp_path_factory.mktemp("root")) as queue:
        yield queue


@pytest.fixture
def queue(shared):
    yield shared
    assert shared.ask("ping") == ["pong"]
    shared.check()


@contextlib.contextmanager
def raw(queue):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(30)
        line.connect(str(queue.dir.socket))
        yield line


def rest(line):
    """Return what comes until the queue hangs up, as replies."""
    data = b""
    with contextlib.suppress(ConnectionResetError, BlockingIOError):
        while more := line.recv(65536):
            data += more
    return [json.loads(one) for one in wire.Frames(limit=2**26).feed(data)]


def test_one_request_per_connection_works_as_with_the_ancestor(queue):
    with raw(queue) as line:
        line.sendall(b"rq1 00000005 ping ")
        line.shutdown(socket.SHUT_WR)
        assert rest(line) == [["pong"]]


def test_many_requests_share_a_connection_and_are_answered_in_order(queue):
    with old_line(queue.dir.socket) as line:
        for number in range(300):
            kind = ("ping", "status", "no_such", "get_message_state")[number % 4]
            line.send(kind, {"msg_id": f"20200101.0000.00.000.{number}"})
        for number in range(300):
            wanted = (["pong"], ["UP"], ["ERROR"], ["fail", "msg not found"])
            assert line.receive() == wanted[number % 4]


def test_slow_requests_do_not_overtake_those_before_them(queue, tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 5_000_000)
    asked = {"dest": "t", "param1": "ls ../attach >&2; echo done >&3"}
    msg_id = short(queue.ok("prep_message", asked))
    one = {"msg_id": msg_id, "pathname": f"{tmp_path}/file"}
    with client.Connection(queue.dir.socket) as line:
        line.send("attach_message", {**one, "name": "a"})
        line.send("ping")
        line.send("attach_message", {**one, "name": "b"})
        line.send("commit_message", {"msg_id": msg_id})
        line.send("commit_message", {"msg_id": msg_id})
        line.send("get_message_state", {"msg_id": msg_id})
        replies = [line.receive() for _ in range(6)]
    assert replies[0][1].endswith("-Attached successfully")
    assert replies[1] == ["pong"]
    assert replies[2][1].endswith("-Attached successfully")
    assert replies[3] == ["ok", "msg commited"]
    assert replies[4] == ["ok", "msg already commited"]
    assert replies[5][1] in ("que", "run", "done")
    assert set(queue.ended(msg_id)["attachments"]) == {"a", "b"}


def test_a_frame_may_come_byte_by_byte(queue):
    with raw(queue) as line:
        for byte in b"rq1 00000005 ping rq1 00000007 uptime ":
            line.sendall(bytes([byte]))
        line.shutdown(socket.SHUT_WR)
        replies = rest(line)
    assert replies[0] == ["pong"]
    assert len(replies) == 2


def test_a_frame_of_300_kilobytes_is_taken(queue):
    fields = {"dest": "t", "param1": "echo done >&3", "notes": "n" * 300_000}
    message = queue.run(**fields)
    assert message["state"] == "done"
    assert len(message["notes"]) == 300_000


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a frame "),
        (b"rq2 00000005 ping ", "a frame "),
        (b"rq1 abcdefgh ping", "eight digits of length"),
        (b"rq1 0000000  ping", "eight digits of length"),
        (b"rq1 00000005Xping ", "eight digits of length"),
        (b"rq1 99999999 ping", "a frame holds at most"),
        (b"\0" * 100, "a frame "),
    ],
)
def test_a_bad_frame_is_answered_with_what_a_frame_is_and_hung_up_on(
    queue, data, wanted
):
    with raw(queue) as line:
        line.sendall(data)
        [[word, text]] = rest(line)
        assert word == "fail"
        assert wanted in text


def test_a_bad_frame_of_who_has_asked_for_kinds_is_answered_with_its_kind(queue):
    with raw(queue) as line:
        line.sendall(wire.request(wire.KINDS))
        assert wire.Frames().feed(line.recv(100)) == [b'["ok"]']
        line.sendall(b"rq1 99999999 ping")
        [[word, _, kind]] = rest(line)
        assert (word, kind) == ("fail", Kind.TOO_LARGE)


def test_silent_clients_and_halves_of_frames_hold_up_nobody(queue):
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(raw(queue)) for _ in range(30)]
        for number, line in enumerate(lines[10:]):
            line.sendall(b"rq1 00001000 create_message {"[: number + 1])
        assert queue.run(param1="echo done >&3")["state"] == "done"
    assert queue.ask("ping") == ["pong"]


def test_beyond_a_thousand_connections_the_longest_idle_makes_room(queue):
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(raw(queue)) for _ in range(990)]
        for line in lines:
            line.sendall(b"rq1 00000005 ping ")
        assert all(line.recv(100).endswith(b'["pong"]') for line in lines)
        more = [stack.enter_context(raw(queue)) for _ in range(20)]
        for line in more:
            line.sendall(b"rq1 00000005 ping ")
            assert line.recv(100).endswith(b'["pong"]')
        for line in lines:
            line.setblocking(False)
        told = [n for n, line in enumerate(lines) if b"too many" in rest_or_one(line)]
        assert 5 <= len(told) <= 15
        assert max(told) < 20
    assert queue.ask("ping") == ["pong"]


def rest_or_one(line):
    with contextlib.suppress(ConnectionResetError, BlockingIOError):
        return line.recv(1000)
    return b""


def test_a_client_that_reads_no_replies_holds_up_nobody(queue):
    with raw(queue) as line:
        line.setblocking(False)
        ask = wire.request("messages", b'{"state": "done", "limit": 0}') * 100
        with contextlib.suppress(BlockingIOError):
            while True:
                line.send(ask)
        assert queue.ask("ping") == ["pong"]


def test_a_client_that_leaves_before_its_reply_hurts_nobody(queue):
    before = queue.ask("num_messages")
    for number in range(50):
        with raw(queue) as line:
            fields = {"dest": "t", "due": 4e9, "param2": number}
            line.sendall(wire.request("create_message", json.dumps(fields).encode()))
    rows = []
    while len(rows) < 50:  # accepted, though nobody heard of it
        rows = queue.ok("list", {"state": "que", "limit": 100})
    assert queue.ask("num_messages")["que"] == before["que"] + 50
    for one in rows:
        queue.ok("delete_message", {"msg_id": one["msg_id"]})


def test_descriptors_that_come_with_other_requests_are_not_kept(queue):
    with client.Connection(queue.dir.socket) as line, open(os.devnull) as null:
        line.ask("ping")
        before = len(os.listdir(f"/proc/{queue.pid}/fd"))
        for _ in range(40):
            assert line.ask("ping", fds=[null.fileno()]) == ["pong"]
        wait_until(lambda: len(os.listdir(f"/proc/{queue.pid}/fd")) <= before + 1)


def test_a_descriptor_belongs_to_the_request_it_came_with(queue, tmp_path):
    (tmp_path / "right").write_bytes(b"right")
    (tmp_path / "wrong").write_bytes(b"wrong")
    msg_id = short(queue.ok("prep_message", {"dest": "t", "param1": "echo done >&3"}))
    asked = {"msg_id": msg_id, "pathname": f"{tmp_path}/right"}
    with client.Connection(queue.dir.socket) as line, (tmp_path / "wrong").open() as fd:
        line.send("attach_message", {**asked, "name": "../bad"}, [fd.fileno()])
        line.send("attach_message", {**asked, "name": "a"})
        line.send("get_message_state", {"msg_id": msg_id}, [fd.fileno()])
        line.send("attach_message", {**asked, "name": "b"})
        line.send("attach_message", {**asked, "name": "c"}, [fd.fileno()])
        words = [line.receive()[0] for _ in range(5)]
    assert words == ["fail", "ok", "ok", "ok", "ok"]
    queue.ok("commit_message", {"msg_id": msg_id})
    queue.ended(msg_id)
    place = queue.folder(msg_id) / "attach"
    found = {path.name: path.read_text() for path in place.iterdir()}
    assert found == {"a": "right", "b": "right", "c": "wrong"}


def test_a_socket_is_found_below_a_path_of_any_length(tmp_path):
    deep = tmp_path / "/".join(["a" * 60] * 4)
    deep.mkdir(parents=True)
    with running_queue(deep, name="n" * 128) as queue:
        assert queue.run(param1="echo done >&3")["state"] == "done"
