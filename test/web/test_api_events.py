"""`/api/v1`: a queue is followed as it happens, and after a cut from where it was."""

from __future__ import annotations

import contextlib
import json
import socket
import time

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until
from harness.web_server import served, web_alone

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token
from rq.config.settings import RootConfig
from rq.index.events import Happening
from rq.index.store import Place
from rq.layout import Root
from rq.web import event_stream
from rq.web import site as sites

pytestmark = pytest.mark.system

API = "/api/v1/queues"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("events")) as found:
        found.queue('echo "$RQ_PARAM1" >&3', "demo")
        yield found


def happening(seq, **fields):
    view = {"event": "commit", "seq": seq, "msg_id": "x" * 300, **fields}
    return Happening(Place(journal="0" * 8, seq=seq, checksum="f" * 8), (view,))


def test_what_is_kept_for_those_who_follow_is_bounded(tmp_path):
    site = sites.make(Root(tmp_path), RootConfig(), b"x" * 32)
    watch = event_stream.Watch(site, "q", Place(journal="0" * 8, seq=0))
    for first in range(1, 20_001, 1000):
        watch._keep([happening(seq) for seq in range(first, first + 1000)])
    kept = sum(len(line.data.data) for line in watch._ring)
    assert kept <= event_stream._KEPT_BYTES
    assert len(watch._ring) <= event_stream._KEPT
    assert watch._ring[-1].end.seq == 20_000
    assert watch._ring[0].end.seq == watch._behind + 1


def test_lines_that_are_not_there_any_more_are_told():
    piece = event_stream._piece_of([happening(7), happening(8)], 4)
    gap, first, second, _ = piece.data.data.split(b"\n\n")
    assert gap == b'event: gap\ndata: {"first":5,"last":6}'
    assert first.startswith(b"id: 00000000.7.ffffffff\nevent: message\n")
    assert piece.end.seq == 8
    assert b'"seq":8' in second
    assert b"gap" not in event_stream._piece_of([happening(5)], 4).data.data


class Stream:
    """A client that follows a queue."""

    def __init__(self, web, name="demo", query="", path="", **headers):
        path = path or f"{API}/{name}/events"
        self.line = socket.create_connection(("127.0.0.1", web.port), timeout=20)
        head = f"GET {path}{query} HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\n"
        named = [
            f"{key.replace('_', '-')}: {value}\r\n" for key, value in headers.items()
        ]
        self.line.sendall((head + "".join(named) + "\r\n").encode())
        self.file = self.line.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        while self.file.readline().strip():
            pass
        self.last = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.line.close()

    def next(self):
        """Return the next event that is no comment: its kind, and what it says."""
        kind, data = "message", None
        while True:
            word, _, value = self.file.readline().decode().rstrip("\n").partition(": ")
            if word == "id":
                self.last = value
            elif word == "event":
                kind = value
            elif word == "data":
                data = json.loads(value)
            elif not word.strip("\r") and data is not None:
                return kind, data

    def until(self, msg_id, state):
        """Return what was told until a message came into a state."""
        told = []
        while True:
            kind, data = self.next()
            assert kind == "message", (kind, data)
            told.append(data)
            if (data["msg_id"], data["state"]) == (msg_id, state):
                return told


def sent(web, queue="demo", **fields):
    body = json.dumps(fields).encode()
    place = f"{API}/{queue}/messages"
    answer = web.ask("POST", place, body, Content_Type="application/json")
    assert answer.status == 201, answer.text
    return answer.json["msg_id"]


def test_what_happens_is_told_as_it_happens(web):
    with Stream(web) as stream:
        assert stream.next()[0] == "start"
        msg_id = sent(web, param1="done")
        told = stream.until(msg_id, "done")
        assert [row["event"] for row in told] == ["commit", "claim", "finish"]
        assert [row["state"] for row in told] == ["que", "run", "done"]
        assert {row["queue"] for row in told} == {"demo"}
        seqs = [row["seq"] for row in told]
        assert seqs == sorted(seqs)
        assert abs(told[0]["time"] - time.time()) < 60
        assert "message" not in told[0]
        journal, seq, checksum = stream.last.split(".")
        assert (len(journal), int(seq), len(checksum)) == (8, seqs[-1], 8)


@pytest.mark.parametrize("how", ["header", "query", "without a checksum"])
def test_who_was_cut_hears_what_came_meanwhile(web, how):
    with Stream(web) as stream:
        stream.next()
        stream.until(sent(web, param1="done"), "done")
        last = stream.last
    ids = [sent(web, param1="err") for _ in range(3)]
    for msg_id in ids:
        wait_until(lambda i=msg_id: web.state("demo", i) == "err", 30)
    if how == "without a checksum":
        last = last.rpartition(".")[0]
    query = f"?after={last}" if how == "query" else ""
    headers = {} if query else {"Last_Event_ID": last}
    with Stream(web, query=query, **headers) as stream:
        assert stream.next() == ("start", {"at": last, "queues": ["demo"]})
        told = [stream.next()[1] for _ in range(9)]
        assert {row["msg_id"] for row in told} == set(ids)
        assert told[0]["seq"] == int(last.split(".")[1]) + 1
        later = sent(web, param1="done")
        stream.until(later, "done")


def test_a_place_that_is_none_is_refused_and_one_of_another_journal_reset(web):
    for wrong in ("x", "0123abcd", "../x.1", "0123abcd.-1", "0123abcd." + "9" * 30):
        answer = web.get(f"{API}/demo/events", Last_Event_ID=wrong)
        assert (answer.status, answer.json["kind"]) == (422, "bad_input")
    with Stream(web) as stream:
        stream.next()
        stream.until(sent(web, param1="done"), "done")
        journal, seq, checksum = stream.last.split(".")
    other = f"{int(checksum, 16) ^ 1:08x}"
    for strange in (
        f"0123abcd.{seq}",
        f"{journal}.{seq}.{other}",
        f"{journal}.{10**17}",
    ):
        with Stream(web, Last_Event_ID=strange) as stream:
            assert [stream.next()[0] for _ in range(2)] == ["start", "reset"]
            stream.until(sent(web, param1="done"), "done")


def test_a_line_about_many_messages_is_told_of_each(web):
    name = web.queue("echo done >&3", num_workers=0)
    at = f"{API}/{name}/txn"
    kind = {"Content_Type": "application/json"}
    txn = web.ask("POST", at, b"{}", **kind).json["txn"]
    lines = b"{}\n" * 5
    prepared = web.ask(
        "POST", f"{at}/{txn}/messages", lines, Content_Type="application/x-ndjson"
    ).json["ids"]
    with Stream(web, name) as stream:
        stream.next()
        body = json.dumps({"ids": prepared}).encode()
        assert web.ask("POST", f"{at}/{txn}/commit", body, **kind).status == 200
        told = stream.until(prepared[-1], "que")
        assert [row["msg_id"] for row in told] == prepared
        assert {row["seq"] for row in told} == {told[0]["seq"]}


ALL = "/api/v1/events"


def test_several_queues_are_followed_in_one_stream(web):
    names = [web.queue("echo done >&3") for _ in range(2)]
    query = f"?queue={','.join(names)}"
    with Stream(web, path=ALL, query=query) as stream:
        kind, start = stream.next()
        assert (kind, start["queues"]) == ("start", sorted(names))
        heard = {}
        for name in names:
            msg_id = sent(web, name)
            while heard.get(msg_id) != (name, "done"):
                kind, data = stream.next()
                if kind == "message":
                    heard[data["msg_id"]] = data["queue"], data["state"]
        sent(web)  # of no concern here
        while stream.next()[0] != "place":
            pass
        last = stream.last
        assert len(last.split(",")) == 2
    ids = {sent(web, name): name for name in names}
    with Stream(web, path=ALL, query=query, Last_Event_ID=last) as stream:
        assert stream.next()[1]["at"] == last
        ended = {}
        while len(ended) < 2:
            kind, data = stream.next()
            assert kind in ("message", "place"), (kind, data)
            if data.get("state") == "done":
                ended[data["msg_id"]] = data["queue"]
        assert ended == ids
    other = f"0123abcd.7,{last.split(',')[0]}"
    with Stream(web, path=ALL, query=query, Last_Event_ID=other) as stream:
        kinds = [stream.next() for _ in range(2)]
        assert [kind for kind, _ in kinds] == ["start", "reset"]
        assert kinds[1][1]["queue"] in names


def test_a_stream_of_all_queues_has_those_that_are_seen(web):
    web.queue("echo done >&3", "unseen", num_workers=0)
    word = viewer(web, "all", "demo")
    with Stream(web, path=ALL, **word) as stream:
        assert stream.next()[1]["queues"] == ["demo"]
        sent(web, "unseen")
        msg_id = sent(web, param1="done")
        kind, data = stream.next()
        assert (kind, data["msg_id"]) == ("message", msg_id)
    for named in ("unseen", "demo,unseen", "nowhere", "../demo"):
        answer = web.get(f"{ALL}?queue={named}", **word)
        assert (answer.status, answer.json["kind"]) == (404, "no_such_queue")
    assert web.get(f"{ALL}?after=x").json["kind"] == "bad_input"


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_queue_whose_owner_is_silent_is_waited_for(tmp_path, is_resumed):
    """The others are told of meanwhile; and from where the asker was it goes on."""
    query, script = "?queue=far,near", "#!/bin/sh\necho done >&3"
    with (
        running_queue(tmp_path, script, name="near") as near,
        running_queue(tmp_path, script, name="far") as far,
        web_alone(tmp_path) as web,
    ):
        with Stream(web, path=ALL, query=query) as stream:
            last = stream.next()[1]["at"]
        before = far.send()
        far.ended(before)
        far.stop()
        headers = {"Last_Event_ID": last} if is_resumed else {}
        with Stream(web, path=ALL, query=query, **headers) as stream:
            kind, start = stream.next()
            assert (kind, start["queues"]) == ("start", ["far", "near"])
            if is_resumed:
                assert sorted(start["at"].split(",")) == sorted(last.split(","))
            kind, waits = stream.next()
            assert (kind, waits["queue"]) == ("waits", "far")
            assert "far" in waits["text"]
            msg_id = near.send()
            assert stream.next()[1]["msg_id"] == msg_id
            far.start()
            while (row := stream.next())[1].get("queues") != ["far"]:
                assert row[0] in ("message", "place"), row
            after = far.send()
            first = before if is_resumed else after
            while (row := stream.next())[1].get("queue") != "far":
                assert row[0] in ("message", "place"), row
            assert row[1]["msg_id"] == first


def viewer(web, name, *queues):
    secret = tokens.new_secret()
    token = Token(
        name=name,
        sha256=tokens.digest_of(secret),
        role=Role.VIEWER,
        queues=queues,
        created=time.time(),
        created_by="test",
    )
    tokens.create(web.daemon.root, token)
    return {"Authorization": f"Bearer {secret}"}


@pytest.mark.slow
def test_only_who_may_see_a_queue_follows_it(web):
    web.queue("echo done >&3", "other")
    word = viewer(web, "v", "demo")
    answer = web.get(f"{API}/other/events", **word)
    assert (answer.status, answer.json["kind"]) == (403, "other_queue")
    answer = web.get(f"{API}/nowhere/events")
    assert (answer.status, answer.json["kind"]) == (404, "no_such_queue")
    with Stream(web, **word) as stream:
        stream.next()
        stream.until(sent(web, param1="done"), "done")
        tokens.revoke(web.daemon.root, "v")
        time_out = time.monotonic() + 30
        while stream.file.readline() not in (b"", b"0\r\n"):  # the last chunk
            assert time.monotonic() < time_out
            sent(web, param1="done")


@pytest.mark.slow
def test_a_queue_that_is_made_again_is_begun_anew(web):
    name = web.queue("echo done >&3")
    with Stream(web, name) as stream:
        stream.next()
        stream.until(sent(web, name), "done")
        assert web.ask("DELETE", f"{API}/{name}").status == 200
        wait_until(lambda: web.get(f"{API}/{name}").status == 404)
        web.queue("echo done >&3", name)
        msg_id = sent(web, name)
        kind = ""
        while kind != "reset":
            kind, _ = stream.next()
        stream.until(sent(web, name), "done")
        assert web.state(name, msg_id) == "done"


@pytest.mark.slow
def test_a_thousand_readers_are_bounded_and_all_hear_the_same(web):
    name = web.queue("echo done >&3")
    with contextlib.ExitStack() as held:
        streams = [held.enter_context(Stream(web, name)) for _ in range(300)]
        for stream in streams:
            assert stream.next()[0] == "start"
        msg_id = sent(web, name)
        told = [stream.until(msg_id, "done") for stream in streams]
        assert all(rows == told[0] for rows in told)


@pytest.mark.slow
def test_readers_that_take_nothing_cost_no_memory_and_keep_none_out(web):
    name = web.queue("echo done >&3", num_workers=0)
    ask = f"GET {API}/{name}/events HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\n\r\n"
    with contextlib.ExitStack() as held:
        for _ in range(50):
            line = held.enter_context(contextlib.closing(socket.socket()))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            line.connect(("127.0.0.1", web.port))
            line.sendall(ask.encode())
        quick = held.enter_context(Stream(web, name))
        quick.next()
        before = memory(web)
        lines = b'{"param1": "x"}\n' * 30_000
        place = f"{API}/{name}/messages/bulk"
        web.ask("POST", place, lines, Content_Type="application/x-ndjson")
        heard = [quick.next()[1]["seq"] for _ in range(30_000)]
        assert heard == list(range(heard[0], heard[0] + 30_000))
        assert memory(web) - before < 64 * 1024 * 1024


def memory(web):
    """Return the bytes that the web's processes hold."""
    pids = [
        child["pid"]
        for child in web.daemon.ask("status")["children"]
        if child["kind"] == "web"
    ]
    return sum(map(resident, pids))


def resident(pid):
    children = f"/proc/{pid}/task/{pid}/children"
    with open(children) as file:
        inner = [int(word) for word in file.read().split()]
    with open(f"/proc/{pid}/statm") as file:
        own = int(file.read().split()[1]) * 4096
    return own + sum(map(resident, inner))
