"""The ancestor on the wire: a receiver with its texts, and a sender that does its steps."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from harness.web_server import Client

HTML = b"<h2>Not Found</h2>"


class OldReceiver:
    """What the ancestor keeps: prepared messages, and what has been committed."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.messages: dict[str, dict[str, Any]] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.is_down = False
        self.lose: list[str] = []  # steps whose reply is not sent
        self.then: Callable[[], Any] = lambda: None  # is called instead
        self.server: Any = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/q/old"

    def delivered(self) -> list[str]:
        return [one for one, state in self.states.items() if state != "prep"]

    def prepare(self, form: dict[str, str]) -> list[Any]:
        message = json.loads(form["mesg"])
        assert message.pop("_method") == "prep"
        short = f"20260102.0304.05.006.{len(self.states) + 1}"
        self.states[short] = "prep"
        self.messages[short] = message
        self.files[short] = {}
        return ["ok", f"{self.url}/{short}"]

    def attach(self, short: str, name: str, data: bytes) -> list[Any]:
        if self.states.get(short) != "prep":
            return ["fail", "cannot find message"]
        self.files[short][name] = data
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return ["ok", f"{md5}-Attached successfully"]

    def commit(self, short: str) -> list[Any]:
        if self.states.get(short) != "prep":
            return ["fail", "cannot find message"]
        self.states[short] = "que"
        return ["ok", "msg commited"]


class _Handler(BaseHTTPRequestHandler):
    @property
    def old(self) -> OldReceiver:
        return self.server.old  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        parts = self.path.split("/")
        if parts[-1] == "old.json":
            self.say({"status": "DOWN" if self.old.is_down else "UP"})
        elif self.old.is_down or parts[3] not in self.old.states:
            self.say(None)
        else:
            self.say([self.old.states[parts[3]]])

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parts = self.path.split("/")
        if parts[-1] == "new_message":
            step, said = "prepare", self.old.prepare(_form(body))
        elif parts[-1] == "new":
            assert body.count(b"filename=") == 1
            name, data = _file(self.headers["Content-Type"], body)
            step, said = "attach", self.old.attach(parts[3], name, data)
        else:
            step, said = "commit", self.old.commit(parts[3])
        if step in self.old.lose:
            self.old.then()
            self.old.lose.remove(step)
        else:
            self.say(said)

    def do_PUT(self) -> None:
        raise AssertionError("the ancestor knows GET and POST alone")

    def say(self, said: Any) -> None:
        body = HTML if said is None else json.dumps(said).encode()
        self.send_response(404 if said is None else 200)
        self.send_header("Content-Type", "text/html;charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@contextlib.contextmanager
def old_receiver() -> Iterator[OldReceiver]:
    old = OldReceiver()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        old.server = server
        server.old = old  # type: ignore[attr-defined]
        thread = threading.Thread(target=old.server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield old
        finally:
            old.server.shutdown()
            thread.join()


def _form(body: bytes) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(body.decode()).items()}


def _file(kind: str, body: bytes) -> tuple[str, bytes]:
    mark = kind.partition("boundary=")[2].encode()
    part = next(one for one in body.split(b"--" + mark) if b"filename=" in one)
    head, _, data = part.partition(b"\r\n\r\n")
    name = head.partition(b'filename="')[2].partition(b'"')[0].decode()
    name = unquote_plus(name)  # as Rack does it
    return name, data.removesuffix(b"\r\n")


class OldSender:
    """The ancestor's relay script: one attempt at a time, a file for the remote id."""

    def __init__(self, web: Client, relay_id: Path) -> None:
        self._web = web
        self._relay_id = relay_id

    def attempt(self, queue: str, files: dict[str, bytes], lose: str = "") -> str:
        """Return the status that the script would report; `lose` is a step whose reply
        it does not get."""
        if not self._relay_id.exists():
            dest = f"http://receiver:3333/q/{queue}"
            mesg = json.dumps({"dest": dest, "count": 1, "_method": "prep"})
            form = {"x_format": "json", "mesg": mesg}
            said = self._web.post(f"/q/{queue}/new_message", form).json
            if said[0] != "ok" or lose == "prepare":
                return f"resend 0-{said}"
            self._relay_id.write_text(said[1])
        full = self._relay_id.read_text()
        path = "/q/" + full.partition("/q/")[2]
        for name, data in files.items():
            said = self._attach(path, name, data)
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            if said != ["ok", f"{md5}-Attached successfully"] or lose == "attach":
                return self._soft(said)
        form = {"x_format": "json", "_method": "commit", "msg_id": full}
        said = self._web.post(path, form).json
        if said[0] != "ok" or lose == "commit":
            return self._soft(said)
        self._relay_id.unlink()
        return f"relayed {full}"

    def _attach(self, path: str, name: str, data: bytes) -> Any:
        fields = {"x_format": "json", "msg_id": uuid.uuid4().hex}
        files = {"filedata": (name, data)}
        return self._web.multipart(f"{path}/attach/new", fields, files).json

    def _soft(self, said: Any) -> str:
        if said == ["fail", "cannot find message"]:
            self._relay_id.unlink()
        return f"resend 0-{said}"
