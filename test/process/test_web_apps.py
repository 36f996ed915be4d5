"""The web apps of the guide: each is started, and used as a page and RQ use it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from harness import documents
from harness.checkout import CHECKOUT
from harness.ports import free_port
from harness.registries import (
    debian_packages,
    need,
    node_packages,
    python_packages,
)
from harness.sandboxes import standing
from harness.waiting import wait_until

from rq.builtin.webhook import settings, signing
from rq.layout import Root

PAGE = documents.GUIDE / "web-app.md"
FASTAPI = ("fastapi==0.165.0", "uvicorn==0.54.0")
EXPRESS = "express@5.3.0"
SLIM = (
    *("php-slim", "php-pimple", "php-nikic-fast-route"),
    *("php-psr-container", "php-psr-http-message"),
)


def fastapi(place, port):
    packages = python_packages(*FASTAPI, alone=False)
    words = ["-m", "uvicorn", "--log-level", "error", "--port", str(port), "app:app"]
    return [sys.executable, *words], {"PYTHONPATH": f"{packages}:{place}"}


def express(place, port):
    (place / "node_modules").symlink_to(node_packages(EXPRESS))
    (place / "package.json").write_text('{"type": "module"}')
    return [need("node", "nodejs"), "app.js"], {}


def web(place, port):
    (place / "orders").mkdir()
    return [need("php", "php-cli"), "-S", f"127.0.0.1:{port}", "app.php"], {
        "PHP_CLI_SERVER_WORKERS": "2"
    }


def slim(place, port):
    words, variables = web(place, port)
    (place / "kept").mkdir()
    (place / "orders").rmdir()  # its name is that of a route
    packages = debian_packages(*SLIM) / "usr/share/php"
    # What Slim 3 does as PHP no longer likes is not of our program.
    quiet = ["-d", "error_reporting=8191", "-d", f"include_path={packages}"]
    return [words[0], *quiet, *words[1:-1]], variables


# The word behind the block of each app: its file, and what starts it.
APPS = {
    "fastapi": ("app.py", fastapi),
    "express": ("app.js", express),
    "web": ("app.php", web),
    "slim": ("index.php", slim),
}


@pytest.fixture(scope="module")
def rq(tmp_path_factory):
    place = tmp_path_factory.mktemp("queues")
    (place / "charge").mkdir()
    text = next(each.text for each in documents.examples(PAGE) if each.use == "script")
    (place / "charge/run").write_text(text)
    (place / "charge/run").chmod(0o755)
    with standing("--scandir", place) as env:
        yield env


@contextlib.contextmanager
def serving(name, place, rq):
    """Give the address of an app that runs."""
    file, prepare = APPS[name]
    for path in (CHECKOUT / "rq/share").glob("rq_client.*"):
        shutil.copy(path, place)
    text = next(each.text for each in documents.examples(PAGE) if each.use == name)
    (place / file).write_text(text)
    port = free_port()
    words, variables = prepare(place, port)
    url = f"http://127.0.0.1:{port}"
    env = {**rq, **variables, "APP_URL": url, "PORT": str(port)}
    with open(place / "log", "wb") as log:
        process = subprocess.Popen(
            words, cwd=place, env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_until(lambda: ask(f"{url}/nowhere") or process.poll() is not None)
        yield url
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def ask(url, method="GET", body=None):
    """Return the status and the object of an answer."""
    data = body if method == "POST" else None
    request = urllib.request.Request(url, data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
        return error.code, json.loads(text) if text.startswith(b"{") else {}


@pytest.mark.parametrize("name", APPS)
def test_an_app_of_the_guide_orders_shows_and_is_told(name, tmp_path, rq):
    number = 7 + list(APPS).index(name)  # one RQ serves them all
    with serving(name, tmp_path, rq) as url:
        order = f"{url}/orders/{number}"
        assert [ask(order)[0], ask(order, "DELETE")[0]] == [404, 404]
        first, again = ask(order, "POST", b""), ask(order, "POST", b"")
        assert first == again
        assert first[0] == 202
        said = set()
        wait_until(lambda: said.add(ask(order)[1]["status"]) or ask(order)[1]["paid"])
        assert f"run - asking the bank about order {number}" in said
        assert ask(order)[1]["state"] == "done"
        assert ask(order, "DELETE") == (409, {"error": "wrong_state"})
        assert ask(f"{url}/hooks", "POST", b"{}") == (400, {"error": "bad_signature"})
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "not signed with our secret (bad_signature)" in log


def test_a_secret_may_be_made_before_the_first_webhook(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    [text] = [each.text for each in documents.examples(PAGE) if each.use == "secret"]
    secrets = []
    for _ in range(2):  # what is there is left
        subprocess.run(["sh", "-euc", text], cwd=tmp_path, check=True)
        secrets += settings.common_secrets(root)
    assert len(signing.key(secrets[0])) == 32
    assert secrets[0] == secrets[1]
