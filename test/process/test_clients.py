"""The clients of one file: the examples of the guide, run by the real interpreters."""

from __future__ import annotations

import ast
import contextlib
import http.server
import json
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from typing import ClassVar

import pytest
from harness import cli, documents
from harness.checkout import CHECKOUT
from harness.ports import free_port
from harness.sandboxes import standing
from harness.waiting import wait_until

from rq.kinds import PASSING

PAGE = documents.GUIDE / "app.md"
STEPS = """#!/bin/sh
echo "run 1 of 2" >&3
sleep 1.5
echo "run 2 of 2" >&3
sleep 600
"""
PAGE_OF_FLOWS = documents.GUIDE / "app-flow.md"
SHARE = CHECKOUT / "rq/share"
# Of each language: the file, how it begins, what runs it, and Debian's package of that.
PROGRAMS = {
    "python": ("app.py", [sys.executable], "python3"),
    "js": ("app.mjs", ["node"], "nodejs"),
    "php": ("app.php", ["php", "-d", "error_reporting=-1"], "php-cli"),
    "sh": ("app.sh", ["sh", "-eu"], "dash"),
}


def need(language):
    """Return the words that run a language; skip if it is not installed."""
    _, words, package = PROGRAMS[language]
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} -> apt-get install {package}")
    return words


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps the last webhook."""

    seen: ClassVar[list[tuple[dict[str, str], bytes]]] = []

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.seen.append((dict(self.headers), self.rfile.read(length)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with the clients and a queue."""
    place = tmp_path_factory.mktemp("app")
    queue = place / "queues/greet"
    queue.mkdir(parents=True)
    script = next(each for each in documents.examples(PAGE) if each.use == "script")
    (queue / "run").write_text(script.text)
    (queue / "run").chmod(0o755)
    (queue / "config.json").write_text('{"num_workers": 4, "nice": 0}')
    steps = place / "queues/steps"
    steps.mkdir()
    (steps / "run").write_text(STEPS)
    (steps / "run").chmod(0o755)
    for path in SHARE.glob("rq_client.*"):
        shutil.copy(path, place)
    (place / "package.json").write_text('{"type": "module"}')
    return place


@pytest.fixture(scope="module")
def rq(place):
    """The environment of programs that ask an RQ; beside them lies a webhook of it."""
    sys.path.insert(0, str(SHARE))
    import rq_client

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    try:
        with standing("--scandir", place / "queues") as env:
            client = rq_client.Client(env["RQ_URL"], env["RQ_TOKEN"])
            url = f"http://127.0.0.1:{server.server_port}/"
            client.send("greet", param1="Ann", post_run_webhook=[url])
            wait_until(lambda: Receiver.seen)
            [(headers, body)] = Receiver.seen
            (place / "headers.json").write_text(json.dumps(headers))
            (place / "body").write_bytes(body)
            (place / "secret").write_text(env["RQ_WEBHOOK_SECRET"])
            own = token_of_sender(env["RQ_ROOT"])
            yield {**env, "RQ_TOKEN": own, "RQ_TOKEN_OF_ADMIN": env["RQ_TOKEN"]}
    finally:
        server.shutdown()
        server.server_close()
        sys.path.remove(str(SHARE))


def token_of_sender(root):
    """Return a token with no more rights than the guide says that a program needs."""
    words = ["token", "create", "shop", "--role", "sender", "--queue", "greet"]
    return cli.rq(
        *words, "--queue", "debug", "--queue", "steps", root=root
    ).stdout.strip()


def run(language, text, place, env):
    """Run a program in the language; return what it prints."""
    words = need(language)
    name = PROGRAMS[language][0]
    (place / name).write_text(text)
    ended = subprocess.run(
        [*words, name],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    return ended.stdout


@pytest.mark.parametrize("language", PROGRAMS)
@pytest.mark.parametrize(("page", "number"), [(PAGE, 10), (PAGE_OF_FLOWS, 2)])
def test_the_examples_of_the_guide_print_what_it_says(
    language, page, number, place, rq
):
    blocks = documents.examples(page)
    parts = [
        each.text for each in blocks if (each.language, each.use) == (language, "app")
    ]
    assert len(parts) == number
    [shown] = [each.text for each in blocks if each.language == ""]
    assert run(language, "".join(parts), place, rq) == shown
    assert messages(rq, ["que"]) == set()  # what was cancelled is gone


ANY_TEXT = """
. ./rq_client.sh
text=$(printf 'a"b\\\\c\\td\\ne\\001 \\303\\244\\360\\237\\230\\200')
id=$(rq_send debug "param1=$text" "param2=$text")
[ "$(rq_wait debug "$id")" = done ]
[ "$(rq_message debug "$id" | rq_field param2)" = "$text" ] && echo equal
"""


def test_any_text_goes_through_the_client_of_sh(place, rq):
    assert run("sh", ANY_TEXT, place, rq) == "equal\n"


@pytest.mark.parametrize("name", ["rq_client.py", "rq_client.js", "rq_client.php"])
def test_a_client_knows_which_failures_pass(name):
    text = (SHARE / name).read_text()
    lists = re.findall(r"(?:NOT_DONE|UNKNOWN) = [^;]*?[\])}]\)?", text)
    words = {word for each in lists for word in re.findall(r'"(\w+)"', each)}
    assert words == {*map(str, PASSING), "no_answer"}


def test_the_client_of_python_is_read_by_python_3_9():
    ast.parse((SHARE / "rq_client.py").read_text(), feature_version=(3, 9))


# ---- failures: a program that sends to each of four addresses, and prints what it hears

SENDERS = {
    "python": """
import sys, rq_client
for url, token in [line.split() for line in open("addresses")]:
    rq = rq_client.Client(url, token, timeout=1, attempts=2)
    try:
        print("sent", rq.send("greet", param1="x").msg_id)
    except rq_client.RQError as error:
        print(error)
""",
    "js": """
import { readFileSync } from "node:fs";
import { Client } from "./rq_client.js";
for (const line of readFileSync("addresses", "utf8").trim().split("\\n")) {
  const [url, token] = line.split(" ");
  const rq = new Client({ url, token, timeout: 1, attempts: 2 });
  const said = await rq.send("greet", { param1: "x" }).then(({ msg_id }) => `sent ${msg_id}`,
    (error) => error.message);
  console.log(said);
}
""",
    "php": """<?php
require "rq_client.php";
foreach (file("addresses") as $line) {
    [$url, $token] = explode(" ", trim($line));
    $rq = new RQClient($url, $token, timeout: 1, attempts: 2);
    try {
        $sent = $rq->send("greet", ["param1" => "x"]);
        echo "sent {$sent["msg_id"]}\\n";
    } catch (RQError $error) {
        echo $error->getMessage(), "\\n";
    }
}
""",
    "sh": """
RQ_TIMEOUT=1 RQ_ATTEMPTS=2
. ./rq_client.sh
while read -r RQ_URL RQ_TOKEN; do
    if id=$(rq_send greet param1=x 2>why); then echo "sent $id"; else sed 's/^rq: //' why; fi
done <addresses
""",
}
SECRET = "rq_0123456789abcdef"


class Losing(socketserver.BaseRequestHandler):
    """Passes a request on to RQ, and loses the first answer of each server."""

    def handle(self):
        host, port = self.server.behind
        with socket.create_connection((host, port), 10) as line:
            line.sendall(_request(self.request))
            answer = b"".join(iter(lambda: line.recv(65536), b""))
        if self.server.is_losing:
            self.server.is_losing = False
        else:
            self.request.sendall(answer)


def _request(connection):
    """Read a request whole, and let the connection end with its answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
    while len(body) < length:
        body += connection.recv(65536)
    lines = [
        line
        for line in head.split(b"\r\n")
        if not line.lower().startswith(b"connection")
    ]
    return b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body


class Busy(http.server.BaseHTTPRequestHandler):
    """Says that it has done nothing, then that a message is on disk."""

    asked = 0

    def do_POST(self):
        Busy.asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        code, data = 201, {"msg_id": "1", "queue": "greet"}
        if Busy.asked % 2:
            code, data = 429, {"kind": "too_often", "detail": "not so often"}
        body = json.dumps(data).encode()
        self.send_response(code)
        for name, value in {
            "Retry-After": "1",
            "Content-Length": str(len(body)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def busy():
    """Give the address of a server that refuses each other request."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def losing(url):
    """Give the address of a server that loses one answer of RQ."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Losing)
    server.behind, server.is_losing = ("127.0.0.1", int(url.rpartition(":")[2])), True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_failure_is_a_sentence_and_a_lost_answer_makes_no_second_message(
    language, place, rq
):
    before = messages(rq)
    with (
        losing(rq["RQ_URL"]) as lossy,
        busy() as refusing,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        places = [
            f"http://127.0.0.1:{port}"
            for port in (silent.getsockname()[1], free_port())
        ]
        asked = [
            (lossy, rq["RQ_TOKEN"]),
            (refusing, SECRET),
            *((at, SECRET) for at in places),
            (rq["RQ_URL"], SECRET),
        ]
        (place / "addresses").write_text(
            "".join(f"{at} {token}\n" for at, token in asked)
        )
        printed = run(language, SENDERS[language], place, rq)
    assert printed.count("\n") == 5, printed
    sent, second, slow, dead, closed = printed.splitlines()
    assert {sent} == {f"sent {msg_id}" for msg_id in messages(rq) - before}
    assert second == "sent 1"
    assert slow.startswith(f"{places[0]} does not answer: ")
    assert dead.startswith(f"{places[1]} does not answer: ")
    assert closed.startswith("This token is not valid")
    assert [
        slow[-11:],
        dead.rpartition(" ")[2] in ("(unreachable)", "(no_answer)"),
        closed[-14:],
    ] == ["(no_answer)", True, "(login_needed)"]
    assert SECRET not in printed


CANCELLERS = {
    "python": """
import rq_client
try:
    rq_client.Client().cancel("greet", "1")
except rq_client.RQError as error:
    print(error.kind)
""",
    "js": """
import { Client } from "./rq_client.js";
await new Client().cancel("greet", "1").catch((error) => console.log(error.kind));
""",
    "php": """<?php
require "rq_client.php";
try {
    (new RQClient())->cancel("greet", "1");
} catch (RQError $error) {
    echo "$error->kind\n";
}
""",
    "sh": """
. ./rq_client.sh
rq_cancel greet 1 2>why || sed 's/.*(\\(.*\\))$/\\1/' why
""",
}


@pytest.mark.parametrize("language", PROGRAMS)
def test_what_may_not_be_done_twice_is_asked_once(language, place, rq):
    heard = []

    class Silent(socketserver.StreamRequestHandler):
        def handle(self):
            heard.append(self.rfile.readline())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            env = {**rq, "RQ_URL": url}
            assert run(language, CANCELLERS[language], place, env) == "no_answer\n"
        finally:
            server.shutdown()
            thread.join()
    assert heard == [b"POST /api/v1/queues/greet/messages/1/cancel HTTP/1.1\r\n"]


def messages(env, states=("que", "run", "done")):
    """Return the ids of the queue's messages in these states."""
    import rq_client

    client = rq_client.Client(env["RQ_URL"], env["RQ_TOKEN"])
    listed = [client._get(f"queues/greet/messages?state={state}") for state in states]
    return {row["msg_id"] for rows in listed for row in rows["messages"]}
