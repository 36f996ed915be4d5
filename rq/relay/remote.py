"""The receiver's side, asked over HTTP: every call is one request with a deadline."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import signal
import ssl
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote, urlencode

import rq
from rq import names
from rq.errors import BadConfig, BadInput, Refused
from rq.message import Attachment
from rq.relay import answers
from rq.relay.answers import Reply
from rq.relay.peers import Peer, Target
from rq.relay.two_phase import Answer, Heard

CONNECT = 10.0  # seconds
SHORT = 60.0  # of a request that moves no file
LONG = 1800.0  # of a commit, which may sync large files
STALL = 60.0  # of an upload: no byte moves, or no answer comes after the last
_PIECE = 1024 * 1024
_BODY = 64 * 1024  # bytes of an answer that are read


class Remote:
    """A queue of another host."""

    def __init__(self, to: Target, peer: Peer) -> None:
        self._to = to
        self._peer = peer
        self._line: http.client.HTTPConnection | None = None
        self._headers = {"User-Agent": f"RQ/{rq.__version__}", **_login(peer)}

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    # ---- the steps

    def prepare(self, fields: Mapping[str, Any], key: str) -> Answer:
        mesg = json.dumps({**fields, "_method": "prep", "_key": key})
        form = {"x_format": "json", "mesg": mesg}
        with self._within(SHORT):
            return answers.prepared(self._post(f"{self._to.queue}/new_message", form))

    def ask(self, remote: str) -> Answer:
        with self._within(SHORT):
            found = answers.asked(self._get(f"{_local(remote)}/state.json"))
            if found.heard is Heard.UNKNOWN and self._is_down():
                return Answer(Heard.SILENT, "the queue is DOWN there")
        return found

    def _is_down(self) -> bool:
        """Whether the queue says nothing of its messages now (the ancestor: 404)."""
        reply = self._get(f"{self._to.queue}.json")
        try:
            return reply.status != 200 or json.loads(reply.body)["status"] == "DOWN"
        except (ValueError, KeyError, TypeError):
            return True

    def commit(self, remote: str, key: str) -> Answer:
        form = {"x_format": "json", "_method": "commit", "_key": key}
        form["msg_id"] = remote
        with self._within(LONG):
            return answers.committed(self._post(_local(remote), form))

    def attach(self, remote: str, name: str, path: Path, known: Attachment) -> Answer:
        """Send a file as a form does."""
        mark = uuid.uuid4().hex
        head, tail = _around(mark, name)
        length = len(head) + known.size + len(tail)
        with self._failures():
            line = self._open()
            line.putrequest("POST", self._to.path(f"{_local(remote)}/attach/new"))
            self._put_headers(line, f"multipart/form-data; boundary={mark}", length)
            line.send(head)
            self._pour(line, path, known)
            line.send(tail)
            return answers.attached(_reply(line), known.md5)

    def _pour(
        self, line: http.client.HTTPConnection, path: Path, known: Attachment
    ) -> None:
        """Send a file, and prove on the way that it is what was once attached."""
        sha, size = hashlib.sha256(), 0
        with path.open("rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                sha.update(piece)
                size += len(piece)
                if size > known.size:
                    break
                line.send(piece)
        if size != known.size or sha.hexdigest() != known.sha256:
            self.close()
            raise Refused(f"attachment {path.name} is not what was attached here")

    # ---- HTTP

    def _post(self, rest: str, form: Mapping[str, str]) -> Reply:
        body = urlencode(form).encode()
        kind = "application/x-www-form-urlencoded"
        return self._request("POST", rest, body, {"Content-Type": kind})

    def _get(self, rest: str) -> Reply:
        return self._request("GET", rest, None, {})

    def _request(
        self, method: str, rest: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        line = self._open()
        line.request(method, self._to.path(rest), body, {**self._headers, **headers})
        return _reply(line)

    def _put_headers(
        self, line: http.client.HTTPConnection, kind: str, length: int
    ) -> None:
        own = {"Content-Type": kind, "Content-Length": str(length)}
        for name, value in {**self._headers, **own}.items():
            line.putheader(name, value)
        line.endheaders()

    def _open(self) -> http.client.HTTPConnection:
        """Return the connection; it stays open from step to step."""
        if self._line is None:
            self._line = _connection(self._to, self._peer)
            self._line.connect()
            self._line.sock.settimeout(STALL)
        return self._line

    @contextlib.contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """Bound a whole step: an answer may also come a byte at a time."""

        def late(number: int, frame: FrameType | None) -> None:
            raise TimeoutError(f"no answer within {seconds:g} s")

        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            with self._failures():
                yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Never use a connection again on which something went wrong."""
        try:
            yield
        except BaseException:
            self.close()
            raise


def _connection(to: Target, peer: Peer) -> http.client.HTTPConnection:
    host = _ascii(to.host)
    if to.scheme == "http":
        return http.client.HTTPConnection(
            host, to.port, timeout=CONNECT, blocksize=_PIECE
        )
    return http.client.HTTPSConnection(
        host, to.port, timeout=CONNECT, context=_context(peer), blocksize=_PIECE
    )


def _ascii(host: str) -> str:
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        raise BadInput(f"{host!r:.80} cannot be a host") from None


def _context(peer: Peer) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if peer.ca is not None:
        try:
            context.load_verify_locations(peer.ca)
        except OSError as error:
            raise BadConfig(f"peers.json: ca {peer.ca}: {error}") from None
    return context


def _login(peer: Peer) -> dict[str, str]:
    if peer.user is None:
        return {}
    pair = f"{peer.user}:{peer.password}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _reply(line: http.client.HTTPConnection) -> Reply:
    found = line.getresponse()
    body = found.read(_BODY)
    if found.will_close or not found.isclosed():
        line.close()
    return Reply(found.status, body)


def _local(remote: str) -> str:
    """Return `QUEUE/ID` of a full id: the host is the one that was asked, whatever it
    calls itself."""
    queue, short = names.split_url(remote)
    if short is None:
        raise BadInput(f"{remote!r:.200} is not the id of a message")
    return f"{queue}/{short}"


def _around(mark: str, name: str) -> tuple[bytes, bytes]:
    shown = quote(name, safe="! #$&()+,-.=@[]^_`{}~") if '"' in name else name
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="filedata"; '
        f'filename="{shown}"\r\nContent-Type: application/octet-stream\r\n\r\n'
    )
    tail = (
        f'\r\n--{mark}\r\nContent-Disposition: form-data; name="x_format"\r\n\r\n'
        f"json\r\n--{mark}--\r\n"
    )
    return head.encode(), tail.encode()
