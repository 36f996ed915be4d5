"""A web of a test's own, and a client that sends exactly what it is told to."""

from __future__ import annotations

import contextlib
import html
import http.client
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from harness import forks
from harness.forks import Forked
from harness.ports import free_port
from harness.starting import READY, environment, script_environment, start
from harness.supervisor import Daemon, daemon_on
from rq.config import files
from rq.layout import Root

BROWSER = "text/html,application/xhtml+xml"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]


class Client:
    """Asks the web at a port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> Answer:
        """Send one request; `Content_Type="x"` is the header Content-Type."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(line):
            line.request(method, path, body, named)
            reply = line.getresponse()
            found = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, found, reply.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def page(self, path: str, **headers: str) -> str:
        """Return the text of a page as a reader sees it, that is unescaped."""
        answer = self.get(path, Accept=BROWSER, **headers)
        assert (answer.status, answer.kind) == (200, "text/html"), answer
        return html.unescape(answer.text)

    def post(
        self, path: str, fields: Mapping[str, str] | None = None, **headers: str
    ) -> Answer:
        """Send a form as a browser or curl -d does."""
        kind = "application/x-www-form-urlencoded"
        body = urlencode(fields or {}).encode()
        return self.ask("POST", path, body, **{"Content_Type": kind, **headers})

    def multipart(
        self,
        path: str,
        fields: Mapping[str, str],
        files: Mapping[str, tuple[str, bytes]] | None = None,
        **headers: str,
    ) -> Answer:
        """Send a form as curl -F does; `files` is {field: (file name, content)}."""
        mark = uuid.uuid4().hex
        head = f'--{mark}\r\nContent-Disposition: form-data; name="'
        body = b"".join(
            f'{head}{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in fields.items()
        )
        for name, (file, data) in (files or {}).items():
            body += (
                f'{head}{name}"; filename="{file}"\r\n\r\n'.encode() + data + b"\r\n"
            )
        body += f"--{mark}--\r\n".encode()
        kind = f"multipart/form-data; boundary={mark}"
        return self.ask("POST", path, body, **{"Content_Type": kind, **headers})

    def send(self, queue: str, **fields: Any) -> str:
        """Send a message; return its short id."""
        mesg = json.dumps({"dest": queue, **fields})
        answer = self.post(f"/q/{queue}/new_message", {"mesg": mesg})
        assert answer.status == 200, answer
        word, full_id = answer.json
        assert word == "ok", answer.text
        return str(full_id).rpartition("/")[2]

    def state(self, queue: str, msg_id: str) -> str:
        return str(self.get(f"/q/{queue}/{msg_id}/state.json").json[0])


class Served(Client):
    """A supervisor, its queues and its web."""

    def __init__(self, daemon: Daemon, port: int) -> None:
        super().__init__(port)
        self.daemon = daemon

    def queue(self, script: str, name: str = "", **settings: Any) -> str:
        """Make a queue of its own for a test; return its name."""
        name = name or f"q{uuid.uuid4().hex[:8]}"
        file = self.daemon.root.path / f"{name}.script"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        wanted = {"name": name, "script": str(file), "exec_prefix": "", "nice": 0}
        wanted |= settings
        self.daemon.until_up("forks")  # else a start may last longer than is waited
        reply = self.daemon.ask("create_queue", wanted)
        assert reply == ["success", "queue created - awesome"], reply
        return name


def write_config(path: Path, port: int, **settings: Any) -> None:
    found = {
        "env": "test",
        "host": "127.0.0.1",
        "port": port,
        "grace": 1,
        "min_free_bytes": 0,
        "min_free_inodes": 0,
        "worker_env": script_environment(),
        **settings,
    }
    files.write_state(Root(path).config, found)


@contextlib.contextmanager
def served(path: Path, *, forked: bool = True, **settings: Any) -> Iterator[Served]:
    """Run a supervisor with its web until the block ends."""
    with daemon_on(path, forked=forked) as daemon:
        port = free_port()
        write_config(path, port, **settings)
        daemon.start()
        daemon.until_up("web")
        yield Served(daemon, port)


@contextlib.contextmanager
def web_alone(path: Path, **settings: Any) -> Iterator[Client]:
    """Run the web of a root that nobody supervises."""
    files.make_root(Root(path))
    port = free_port()
    write_config(path, port, **settings)
    process, said = start_web(path)
    try:
        assert said == "\n", said
        yield Client(port)
    finally:
        process.terminate()
        process.wait(60)


def start_web(path: Path, **env: str) -> tuple[subprocess.Popen[bytes] | Forked, str]:
    """Start the web; return its process and what it says of its readiness."""
    words = ("--root", str(path))
    if forks.suffice(env):
        return forks.start("web", words, environment(env))
    command = (sys.executable, "-m", "rq.web", *words, "--ready-fd", READY)
    return start(command, environment(env))
