"""A host that hands out leases, without a queue behind it: it answers what a test tells it
to, also what no RQ would."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]  # status, and what is written as JSON (bytes as they are)


class LeaseHost:
    """What a host knows of its messages."""

    def __init__(self) -> None:
        self.waiting: list[dict[str, Any]] = []  # leases that nobody has
        self.seconds = 60.0
        self.asked: list[Any] = []  # requests for leases
        self.words: list[tuple[str, Any]] = []  # what workers have said, in this order
        self.polls: list[float] = []  # when leases were asked for
        self.logs: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        self.attachments: dict[str, bytes] = {}
        self.cancels: dict[str, str] = {}
        self.script = b""
        self.scripts_asked: list[str | None] = []  # with which If-None-Match
        self.visits = 0  # requests, also those that it hung up on
        # A word, say `leases/start`: what is answered in the place of the usual.
        self.instead: dict[str, Callable[[Any], Answer | None]] = {}
        self.half: set[str] = set()  # words whose next answer breaks off
        self.is_silent = False  # it hangs up on everybody
        self.is_closed = False  # it asks everybody for a login
        self._leased: dict[str, Any] = {}  # by request
        self._count = 0
        self.origin = ""  # its URL without a path

    @property
    def url(self) -> str:
        return f"{self.origin}/q/far"

    def give(self, files: dict[str, bytes] | None = None, **params: Any) -> str:
        """Let a message wait for a worker; return its token."""
        self._count += 1
        msg_id = f"20260102.0304.05.006.{1600000000000 + self._count}"
        token = f"{msg_id}~1~{self._count:032x}"
        fields = {"msg_id": msg_id, "dest": "far", "due": 1.0, "count": 0, **params}
        listed = []
        for name, data in (files or {}).items():
            self.attachments[f"{msg_id}/{name}"] = data
            sha256 = hashlib.sha256(data).hexdigest()
            listed.append({"name": name, "size": len(data), "sha256": sha256})
        self.waiting.append(
            {
                "token": token,
                "msg_id": msg_id,
                "attempt": 1,
                "seconds": self.seconds,
                "message": fields,
                "attachments": listed,
                "limits": {},
            }
        )
        return token

    def said(self, word: str) -> list[Any]:
        """Return what was said by one kind of word, one entry for each token."""
        return [about for kind, about in list(self.words) if kind == word]

    def ends(self) -> list[str | None]:
        """Return the words of all ends."""
        return [end["word"] for end in self.said("finish")]

    @property
    def tag(self) -> str:
        """The ETag of its script."""
        return f'"{hashlib.sha256(self.script).hexdigest()}"'

    # ---- answering

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> Answer:
        """Return what is answered to a request."""
        if self.is_closed:
            return 401, {"detail": "a login is needed"}
        return self._answer(method, path, headers, body)

    def _answer(self, method: str, path: str, headers: Any, body: bytes) -> Answer:
        path, _, _ = path.partition("?")
        if "/attach/" in path:
            if "attach" in self.instead and (said := self.instead["attach"](path)):
                return said
            return 200, self.attachments["/".join(path.split("/")[3::2])]
        word = path.partition("/api/v1/queues/far/")[2]
        if method == "PUT":
            return self._put(word, headers, body)
        asked = json.loads(body) if body else {}
        if word in self.instead and (answer := self.instead[word](asked)):
            return answer
        if word == "script":
            self.scripts_asked.append(headers["If-None-Match"])
            is_known = self.scripts_asked[-1] == self.tag
            return (304, b"") if is_known else (200, self.script)
        if word == "leases":
            return 200, self._lease(asked)
        if method == "PATCH":
            self.words.append(("progress", asked))
            return 200, {"ok": True}
        return 200, {"results": self._results(word.partition("/")[2], asked)}

    def _lease(self, asked: Any) -> Any:
        self.asked.append(asked)
        if asked["request"] in self._leased:
            return self._leased[asked["request"]]
        self.polls.append(time.monotonic())
        until = self.polls[-1] + asked["wait"]
        while asked["count"] and not self.waiting and time.monotonic() < until:
            if self.cancels or self.is_silent:
                break
            time.sleep(0.01)
        count = asked["count"]
        given, self.waiting = self.waiting[:count], self.waiting[count:]
        why = None if given else "nothing is due"
        answer = {"leases": given, "why": why, "cancels": self.cancels}
        if given:
            self._leased[asked["request"]] = answer
        return answer

    def _results(self, word: str, asked: Any) -> list[Any]:
        items = asked.get("tokens") or asked["finishes"]
        for item in items:
            about = {"token": item, **asked} if isinstance(item, str) else item
            self.words.append((word, about))
        granted = {"seconds": self.seconds} if word == "renew" else {}
        tokens = [item if isinstance(item, str) else item["token"] for item in items]
        return [{"token": token, "ok": True, **granted} for token in tokens]

    def _put(self, word: str, headers: Any, body: bytes) -> Answer:
        _, token, kind, *name = word.split("/")
        if kind == "log":
            have = len(self.logs.get(token, b""))
            if int(headers["Upload-Offset"]) != have:
                return 409, {"ok": False, "kind": "wrong_offset", "have": have}
            self.logs[token] = self.logs.get(token, b"") + body
            return 200, {"ok": True, "have": have + len(body)}
        self.files[name[0]] = body
        return 200, {"ok": True, "sha256": headers["X-RQ-SHA256"], "size": len(body)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    host: LeaseHost

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def _all(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.host.visits += 1
        if self.host.is_silent:
            self.close_connection = True
            return
        status, value = self.host.answer(self.command, self.path, self.headers, body)
        word = self.path.rpartition("/")[2]
        breaks_off = word in self.host.half
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if self.path.endswith("/script"):
                self.send_header("ETag", self.host.tag)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if breaks_off else data)
        if breaks_off:
            self.host.half.discard(word)
            self.close_connection = True

    def __getattr__(self, name: str) -> Any:
        """Answer every method alike: `do_GET`, `do_POST`, …"""
        if name.startswith("do_"):
            return self._all
        raise AttributeError(name)


def _server(address: str) -> type[ThreadingHTTPServer]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return type("Server", (ThreadingHTTPServer,), {"address_family": family})


@contextlib.contextmanager
def lease_host(
    address: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[LeaseHost]:
    """Serve until the block ends."""
    host = LeaseHost()
    handler = type("Handler", (_Handler,), {"host": host})
    server = _server(address)((address, 0), handler)
    server.daemon_threads = True
    scheme = "http"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    place = f"[{address}]" if ":" in address else address
    host.origin = f"{scheme}://{place}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield host
    finally:
        host.is_silent = True
        server.shutdown()
        thread.join()
        server.server_close()
