"""What a host that is none of ours makes an agent do: nothing but say so in a sentence."""

from __future__ import annotations

import asyncio
import io
import tarfile
import time

import pytest
from harness.message_folders import deepen

from rq.errors import BadInput, Refused, Unreachable
from rq.outbound import addresses, peers
from rq.outbound.host import Host, Request
from rq.outbound.peers import Peer
from rq.work import answers, place, shared_script
from rq.work.holding import Result
from rq.work.shared_script import lay_out
from rq.work.words import MOST, Bulk

# ---- answers that are no HTTP, or too much of it


def asked(answer, **request):
    """Return the reply to a request that a server answers with these bytes."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def ask():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        to = peers.target(f"http://127.0.0.1:{port}/q/far")
        asked = Host(to, Peer(allow=addresses.allowed([to.place])), time.monotonic)
        try:
            return await asked.ask(Request(method="GET", path="/x", **request))
        finally:
            asked.close()
            server.close()
            await server.wait_closed()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    "answer",
    [
        "HTTP/1.1 ²²² OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 -20 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: ²\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nwithout a length",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
        "HTTP/1.1 100 Go on\r\n\r\n" * 50,
        f"HTTP/1.1 200 OK\r\nX: {'x' * 70_000}\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n\r\n",
    ],
    ids=lambda text: text[:40],
)
def test_an_answer_that_is_no_http_is_unreachable(answer):
    with pytest.raises(Unreachable):
        asked(answer.encode("latin-1"))


def test_a_failure_in_the_place_of_a_small_file_is_read():
    """What a file may have is no bound for the sentence that there is none."""
    body = b'{"detail": "there is no such message, and this is longer than the file"}'
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body)
    reply = asked(head + body, most=3, sink=lambda: pytest.fail)
    assert (reply.status, reply.body) == (404, body)


# ---- answers that are JSON


def offered(*tokens):
    entries = [{"token": token, "seconds": 60} for token in tokens]
    whole = {"leases": [{**entry, "message": {}} for entry in entries]}
    return answers.offer(answers.orjson.dumps(whole), 0.0, 0.0)


@pytest.mark.parametrize("attempt", ["\u0663", "1\n", "²", "-1"])
def test_a_token_that_no_address_can_hold_is_refused(attempt):
    with pytest.raises(BadInput, match="no token"):
        offered(f"20260102.0304.05.006.7~{attempt}~{'a' * 32}")


def test_one_token_for_two_leases_is_refused():
    """The folder of the second would take the place of the first's."""
    token = f"20260102.0304.05.006.7~1~{'a' * 32}"
    with pytest.raises(BadInput, match="one token"):
        offered(token, token)
    with pytest.raises(BadInput, match="one attempt"):
        offered(token, f"20260102.0304.05.006.7~1~{'b' * 32}")


# ---- words


def test_a_word_that_is_refused_refuses_no_other_of_its_request():
    requests = []

    async def send(items):
        requests.append(list(items))
        if "bad" in items:
            raise Refused("a name is too long")
        return [Result(ok=True, text=item) for item in items]

    async def say():
        bulk: Bulk[str] = Bulk(send)
        words = [bulk.ask(word) for word in ("a", "bad", "b")]
        first = await asyncio.gather(*words, return_exceptions=True)
        return [*first, await bulk.ask("c")]

    a, bad, b, c = asyncio.run(say())
    assert [result.text for result in (a, b, c)] == ["a", "b", "c"]
    assert isinstance(bad, Refused)
    assert requests[0] == ["a", "bad", "b"]


def test_words_wait_for_others_unless_they_fill_a_request():
    requests = []

    async def send(items):
        requests.append(len(items))
        return [Result(ok=True) for _ in items]

    async def say():
        bulk: Bulk[str] = Bulk(send, 3600.0)
        await asyncio.wait_for(bulk.ask("the first"), 30)
        await asyncio.wait_for(asyncio.gather(*map(bulk.ask, ["more"] * MOST)), 30)
        waiting = asyncio.create_task(bulk.ask("another"))
        await asyncio.sleep(0)
        await bulk.stop()
        waiting.cancel()

    asyncio.run(say())
    assert requests == [1, MOST]


def test_words_go_on_behind_one_that_cannot_be_written():
    async def send(items):
        if "bad" in items:
            raise TypeError("no JSON")
        return [Result(ok=True) for _ in items]

    async def say():
        bulk: Bulk[str] = Bulk(send)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        with pytest.raises(asyncio.CancelledError):
            await bulk.ask("bad")
        return await asyncio.wait_for(bulk.ask("good"), 30)

    assert asyncio.run(say()).ok


# ---- scripts


def header(name, kind, body=b"", size=None):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(body) if size is None else size
    padded = body + b"\0" * (-len(body) % 512)
    style = tarfile.USTAR_FORMAT if size is None else tarfile.GNU_FORMAT
    return info.tobuf(format=style) + padded


def with_pax(**headers):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("run")
        info.pax_headers = {f"GNU.sparse.{key}": text for key, text in headers.items()}
        info.size = 600
        tar.addfile(info, io.BytesIO(b"x" * 600))
    return data.getvalue()


END = b"\0" * 1024
HOSTILE = {
    "a chain of headers": header("x", tarfile.XHDTYPE) * 3000 + END,
    "a chain of names": header("x", tarfile.GNUTYPE_LONGNAME, b"a\0") * 3000 + END,
    "a map that is none": with_pax(map="a,b", size="5"),
    "a size that is none": with_pax(size="x"),
    "a map without its end": with_pax(major="1", minor="0", name="run", realsize="5"),
    "one name twice": header("run", tarfile.REGTYPE) * 2 + END,
    "a file as a directory": header("a", tarfile.REGTYPE)
    + header("a/b", tarfile.REGTYPE)
    + END,
    "no bytes": b"",
    "a size that no index can hold": header("x", tarfile.XHDTYPE, size=2**70) + END,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_script_that_is_no_tar_is_refused_in_a_sentence(tmp_path, data):
    with pytest.raises(BadInput, match="the queue's script"):
        lay_out(data, tmp_path / "script")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_script_of_too_many_files_is_refused_and_nothing_of_it_stays(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(shared_script, "MOST", 20)
    data = b"".join(header(f"f{n}", tarfile.REGTYPE) for n in range(100_000)) + END
    with pytest.raises(Refused, match="more than 20 files"):
        lay_out(data, tmp_path / "script")
    assert list(tmp_path.iterdir()) == []


# ---- what a script has made


def test_a_tree_that_is_deeper_than_python_s_stack_is_removed(tmp_path):
    top = tmp_path / "message"
    top.mkdir()
    deepen(top)
    place.remove(top)
    assert not top.exists()
    place.remove(top)  # what is gone is fine
