"""`/api/v1`: a message with files is prepared, its files come whole or in pieces, and it
is committed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import time
from urllib.parse import quote

import pytest
from harness.waiting import wait_until
from harness.web_server import served

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token

pytestmark = pytest.mark.system

API = "/api/v1/queues"
DATA = os.urandom(300_001)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("attached")) as found:
        found.queue("cat ../attach/* | wc -c; echo done ok >&3", "demo")
        yield found


def post(web, path, value=None, **headers):
    body = json.dumps(value or {}).encode()
    return web.ask("POST", path, body, Content_Type="application/json", **headers)


def prepared(web, **fields):
    answer = post(web, f"{API}/demo/messages/prepare", fields)
    assert answer.status == 201, answer.text
    assert answer.headers["location"].endswith(answer.json["msg_id"])
    return f"{API}/demo/messages/{answer.json['msg_id']}"


def put(web, here, data=DATA, file="a.bin", **headers):
    return web.ask("PUT", f"{here}/attachments/{quote(file)}", data, **headers)


def piece(web, here, start, end, whole=DATA, size=None, sha256=None, **headers):
    size = len(whole) if size is None else size
    span = "*" if start is None else f"{start}-{end - 1}"
    named = {
        "X_RQ_SHA256": sha256 or hashlib.sha256(whole).hexdigest(),
        "Content_Range": f"bytes {span}/{size}",
    }
    return put(
        web, here, b"" if start is None else whole[start:end], **named, **headers
    )


def refused(answer, status, kind=None):
    assert (answer.status, answer.kind) == (status, "application/problem+json"), answer
    assert answer.json.get("kind") == kind
    return answer.json["detail"]


def test_a_message_is_sent_with_a_file_and_its_script_finds_it(web):
    here = prepared(web, param1="x")
    assert web.get(here).json["state"] == "prep"
    answer = put(web, here)
    assert (answer.status, answer.json["attached"]) == (200, True)
    assert answer.json["sha256"] == SHA256
    row = {
        "name": "a.bin",
        "size": len(DATA),
        "sha256": SHA256,
        "md5": hashlib.md5(DATA).hexdigest(),
    }
    assert web.get(f"{here}/attachments").json == {"attachments": [row]}
    assert post(web, f"{here}/commit").status == 200
    assert post(web, f"{here}/commit").status == 200  # its answer may have been lost
    wait_until(lambda: web.get(here).json["state"] == "done", 30)
    assert str(len(DATA)) in web.get(f"{here}/log").text.split()
    assert web.get(f"{here}/attachments").json == {"attachments": [row]}
    assert web.get(f"{here}/attachments/a.bin").body == DATA


def test_a_prepared_message_with_a_key_is_one(web):
    place, key = f"{API}/demo/messages/prepare", {"Idempotency_Key": "prep 1"}
    first = post(web, place, {"param1": "x"}, **key)
    again = post(web, place, {"param1": "x"}, **key)
    assert (first.status, again.status) == (201, 201)
    assert first.json == again.json
    here = first.headers["location"]
    assert post(web, f"{here}/commit").status == 200
    late = post(web, place, {"param1": "x"}, **key)
    assert (late.status, late.json["joined"]) == (200, True)
    assert late.json["msg_id"] == first.json["msg_id"]


def test_a_part_of_a_file_is_given(web):
    here = prepared(web)
    put(web, here, b"0123456789", "digits.txt")
    at = f"{here}/attachments/digits.txt"
    all_of_it = web.get(at)
    assert (all_of_it.status, all_of_it.body) == (200, b"0123456789")
    assert "digits.txt" in all_of_it.headers["content-disposition"]
    tag = all_of_it.headers["etag"]
    for wanted, got in {
        "bytes=2-4": (206, b"234"),
        "bytes=-3": (206, b"789"),
        "bytes=8-": (206, b"89"),
        "bytes=8-99": (206, b"89"),
        "bytes=0-1,4-5": (200, b"0123456789"),
        "lines=1-2": (200, b"0123456789"),
        "bytes=5-2": (200, b"0123456789"),
    }.items():
        answer = web.get(at, Range=wanted)
        assert (answer.status, answer.body) == got, wanted
    assert web.get(at, Range="bytes=2-4").headers["content-range"] == "bytes 2-4/10"
    assert web.get(at, Range="bytes=2-4", If_Range='"other"').status == 200
    assert web.get(at, Range="bytes=2-4", If_Range=tag).status == 206
    for beyond in ("bytes=10-", "bytes=-0", f"bytes={'9' * 30}-"):
        assert web.get(at, Range=beyond).status == 416
    assert web.get(at, If_None_Match=tag).status == 304
    head = web.ask("HEAD", at)
    assert (head.status, head.headers["content-length"]) == (200, "10")


def test_a_file_that_was_cut_goes_on_where_it_was(web):
    here = prepared(web)
    assert piece(web, here, None, 0).json == {
        "name": "a.bin",
        "have": 0,
        "attached": False,
    }
    first = piece(web, here, 0, 100_000)
    assert (first.status, first.json["have"]) == (202, 100_000)
    asked = piece(web, here, None, 0)
    assert (asked.json["have"], asked.json["attached"]) == (100_000, False)
    gap = piece(web, here, 200_000, len(DATA))
    assert "go on from there" in refused(gap, 409, "wrong_offset")
    assert gap.json["have"] == 100_000
    last = piece(web, here, 100_000, len(DATA))
    assert (last.status, last.json["attached"]) == (200, True)
    asked = piece(web, here, None, 0)
    assert (asked.status, asked.json["attached"]) == (200, True)
    assert web.get(f"{here}/attachments/a.bin").body == DATA


def test_a_piece_of_another_length_or_digest_is_another_file(web):
    here = prepared(web)
    assert piece(web, here, 0, 1000).json["have"] == 1000
    other = piece(web, here, 1000, 2000, size=2000)
    assert refused(other, 409, "wrong_offset")
    assert other.json["have"] == 0
    assert piece(web, here, None, 0).json["have"] == 1000
    wrong = piece(web, here, 0, len(DATA), sha256="0" * 64)
    assert "not whole" in refused(wrong, 409, "not_whole")
    more = piece(web, here, 1000, 2000, size=1500, sha256="1" * 64)
    assert refused(more, 409, "wrong_offset")
    over = put(web, here, DATA, Content_Range="bytes 0-9/10", X_RQ_SHA256="2" * 64)
    assert "more came than were announced" in refused(over, 422, "bad_input")
    assert web.get(f"{here}/attachments").json == {"attachments": []}
    assert piece(web, here, 1000, len(DATA)).json["attached"]


def test_what_is_sent_otherwise_than_it_is_said_is_not_attached(web):
    here = prepared(web)
    refused(put(web, here, X_RQ_SHA256="0" * 64), 409, "not_whole")
    refused(put(web, here, X_RQ_SHA256="x"), 422, "bad_input")
    refused(put(web, here, Content_Range="bytes 0-9/10"), 422, "bad_input")
    assert put(web, here, Content_Encoding="gzip").status == 415
    no_length = web.ask("PUT", f"{here}/attachments/a", iter([b"x"]))
    refused(no_length, 422, "bad_input")
    assert web.get(f"{here}/attachments").json == {"attachments": []}
    assert put(web, here, X_RQ_SHA256=SHA256).json["attached"]


def test_a_client_that_hangs_up_in_a_file_has_attached_nothing(web):
    here = prepared(web)
    head = (
        f"PUT {here}/attachments/a.bin HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\n"
        f"Content-Length: {len(DATA)}\r\n\r\n"
    )
    with contextlib.closing(socket.create_connection(("127.0.0.1", web.port))) as line:
        line.sendall(head.encode() + DATA[:1000])
    assert put(web, here, b"other", "b").json["attached"]
    names = [row["name"] for row in web.get(f"{here}/attachments").json["attachments"]]
    assert names == ["b"]


@pytest.mark.parametrize(
    "file", ["ä ö.txt", "日本語", "a;b", "100% 'x' \"y\"", "a?b#c"]
)
def test_a_file_may_be_called_in_any_language(web, file):
    here = prepared(web)
    assert put(web, here, b"x", file).json["name"] == file
    assert web.get(f"{here}/attachments").json["attachments"][0]["name"] == file
    assert web.get(f"{here}/attachments/{quote(file)}").body == b"x"
    assert web.ask("DELETE", f"{here}/attachments/{quote(file)}").json == {"name": file}
    here_no_more = web.get(f"{here}/attachments/{quote(file)}")
    refused(here_no_more, 404, "no_such_message")
    gone = web.ask("DELETE", f"{here}/attachments/{quote(file)}")
    refused(gone, 404, "no_such_message")


@pytest.mark.parametrize(
    "path",
    [
        *("..", "%2e%2e", ".", ".hidden", "..%2f..%2fmsg", "a%2fb", "a/b", "a%5cb"),
        *("%00", "a%0ab", "-x", "%e2%80%aex", "x" * 300, "%ff"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_no_name_leads_elsewhere(web, hostile, method, path):
    answer = web.ask(method, f"{hostile}/attachments/{path}", b"x")
    assert 400 <= answer.status < 500, (answer.status, answer.text)
    assert web.get(f"{hostile}/attachments").json == {"attachments": []}


@pytest.fixture(scope="module")
def hostile(web):
    return prepared(web)


def test_nothing_is_attached_to_a_message_that_is_committed_or_not_there(web):
    here = prepared(web)
    put(web, here)
    assert post(web, f"{here}/commit").status == 200
    assert put(web, here, X_RQ_SHA256=SHA256).json["attached"]  # it has it already
    refused(put(web, here), 409, "already_committed")
    refused(put(web, here, b"x", "b"), 409, "already_committed")
    refused(web.ask("DELETE", f"{here}/attachments/a.bin"), 409, "wrong_state")
    nowhere = f"{API}/demo/messages/1000000000000"
    refused(put(web, nowhere), 404, "no_such_message")
    refused(web.get(f"{nowhere}/attachments"), 404, "no_such_message")
    refused(put(web, f"{API}/nowhere/messages/1"), 404, "no_such_message")


def test_only_those_who_may_send_attach(tmp_path_factory):
    with served(tmp_path_factory.mktemp("rights")) as web:
        web.queue("echo done >&3", "demo", num_workers=0)
        web.queue("echo done >&3", "other", num_workers=0)
        here = prepared(web)
        put(web, here)
        word = {
            role: {"Authorization": f"Bearer {token_of(web, role)}"}
            for role in (Role.VIEWER, Role.PRODUCER)
        }
        viewer, producer = word[Role.VIEWER], word[Role.PRODUCER]
        assert web.get(f"{here}/attachments/a.bin", **viewer).body == DATA
        refused(put(web, here, **viewer), 403, "not_allowed")
        place = f"{API}/demo/messages/prepare"
        refused(post(web, place, **viewer), 403, "not_allowed")
        gone = web.ask("DELETE", f"{here}/attachments/a.bin", **viewer)
        refused(gone, 403, "not_allowed")
        # What another user has prepared is not theirs to change.
        refused(put(web, here, b"x", "b", **producer), 403, "not_allowed")
        own = post(web, place, **producer).headers["location"]
        assert put(web, own, **producer).json["attached"]
        other = f"{API}/other/messages/prepare"
        refused(post(web, other, **producer), 403, "other_queue")


def token_of(web, role):
    secret = tokens.new_secret()
    token = Token(
        name=f"a-{role}",
        sha256=tokens.digest_of(secret),
        role=role,
        queues=("demo",),
        created=time.time(),
        created_by="test",
    )
    tokens.create(web.daemon.root, token)
    return secret
