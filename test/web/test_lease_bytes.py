"""Leases over HTTP: logs and result files."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import time

import pytest
from harness.leases import API, begun, pulled, say
from harness.waiting import wait_until
from harness.web_server import served

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("leases")) as found:
        yield found


# ---- bytes


def test_the_log_of_an_attempt_arrives_in_pieces(web):
    name = pulled(web)
    lease = begun(web, name)
    place = f"{API}/{name}/leases/{lease['token']}/log"
    first = web.ask("PUT", place, b"one\n", Upload_Offset="0")
    assert (first.status, first.json["have"]) == (200, 4)
    again = web.ask("PUT", place, b"one\n", Upload_Offset="9")
    assert (again.status, again.json["kind"]) == (409, "wrong_offset")
    assert again.json["have"] == 4
    large = b"x" * 2_500_000 + b"\n"
    assert web.ask("PUT", place, large, Upload_Offset="4").json["have"] == 4 + len(
        large
    )
    assert web.ask("PUT", place, b"", Upload_Offset="x").status == 422
    shown = web.get(f"/q/{name}/{lease['msg_id']}/log/stdio.log")
    assert b"one\n" in shown.body


def test_a_log_goes_on_behind_a_gap_in_one_request(web):
    """The note of a gap is shorter than what was lost."""
    name = pulled(web)
    lease = begun(web, name)
    place = f"{API}/{name}/leases/{lease['token']}/log"
    large = b"x" * 2_500_000 + b"\n"
    said = web.ask("PUT", place, large, Upload_Offset="1000", Gap="true")
    assert said.status == 200, said.text
    assert said.json["have"] == len(b"[1000 bytes lost]\n") + len(large)


def test_result_files_become_attachments_of_what_is_done(web):
    name = pulled(web)
    lease = begun(web, name)
    place = f"{API}/{name}/leases/{lease['token']}"
    data = b"x" * 3_000_000
    sha256 = hashlib.sha256(data).hexdigest()
    whole = web.ask("PUT", f"{place}/files/whole.bin", data)
    assert (whole.status, whole.json["sha256"]) == (200, sha256)
    pieces = f"{place}/files/pieces.bin"

    def piece(said, body=b""):
        return web.ask("PUT", pieces, body, X_RQ_SHA256=sha256, Content_Range=said)

    assert piece("bytes */3000000").json["have"] == 0
    half = piece("bytes 0-999999/3000000", data[:1_000_000])
    assert (half.status, half.json["have"]) == (409, 1_000_000)
    assert piece("bytes */3000000").json["have"] == 1_000_000
    rest = piece("bytes 1000000-2999999/3000000", data[1_000_000:])
    assert (rest.status, rest.json["size"]) == (200, 3_000_000)
    named = {"whole.bin": sha256, "pieces.bin": sha256}
    ended = say(
        web, "POST", f"{name}/leases/{lease['token']}/finish",
        {"word": "done", "files": named},
    )  # fmt: skip
    assert ended.json["state"] == "done", ended.text
    for file in named:
        assert web.get(f"/q/{name}/{lease['msg_id']}/attach/{file}").body == data


def test_a_result_file_of_a_lease_that_is_over_is_refused(web):
    name = pulled(web)
    lease = begun(web, name)
    place = f"{API}/{name}/leases/{lease['token']}"
    web.ask("DELETE", place)
    late = web.ask("PUT", f"{place}/files/a", b"x")
    assert (late.status, late.json["kind"]) == (409, "lease_over")


def test_result_files_of_more_bytes_than_the_queue_takes_are_refused(web):
    name = pulled(web, result_files=2, result_bytes=10)
    lease = begun(web, name)
    place = f"{API}/{name}/leases/{lease['token']}/files"
    early = web.ask("PUT", f"{place}/a", b"x" * 11)
    assert (early.status, early.json["kind"]) == (413, "too_large")
    assert "a has 11 bytes, and an attempt hands in at most 10" in early.json["detail"]
    pieces = {"X_RQ_SHA256": "0" * 64, "Content_Range": "bytes 0-4/11"}
    assert web.ask("PUT", f"{place}/a", b"xxxxx", **pieces).status == 413
    assert web.ask("PUT", f"{place}/a", b"x" * 6).status == 200
    late = web.ask("PUT", f"{place}/b", b"x" * 5)
    assert (late.status, late.json["kind"]) == (413, "too_large")
    assert "with b the attempt would have handed in 11 bytes" in late.json["text"]


@contextlib.contextmanager
def half_sent(web, place, data, size):
    """Send the beginning of a file of `size` bytes; the connection stays."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=30)
    try:
        connection.putrequest("PUT", place)
        connection.putheader("Content-Length", str(size))
        connection.endheaders(data)
        yield connection
    finally:
        connection.close()


@pytest.mark.slow
def test_a_file_whose_bytes_stop_coming_keeps_no_lease(web):
    name = pulled(web, seconds=1)
    lease = begun(web, name)
    place = f"{API}/{name}/leases/{lease['token']}/files/a"
    with half_sent(web, place, b"x" * 10, 20):
        wait_until(lambda: web.state(name, lease["msg_id"]) == "que", 10)


@pytest.mark.slow
def test_a_file_that_keeps_coming_keeps_its_lease(web):
    name = pulled(web, seconds=1)
    lease = begun(web, name)
    place = f"{API}/{name}/leases/{lease['token']}/files/a"
    begin = time.monotonic()
    with half_sent(web, place, b"x", 1000) as connection:
        sent = 1

        def passed():
            nonlocal sent
            connection.send(b"x")
            sent += 1
            return time.monotonic() - begin > 3

        wait_until(passed, 10)
        connection.send(b"x" * (1000 - sent))
        assert connection.getresponse().status == 200
    assert web.state(name, lease["msg_id"]) == "run"
