"""`rq token`: the secret once and alone, the list without it, and one sentence each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from harness.checkout import CHECKOUT
from harness.cli import rq, running
from harness.ports import free_port
from harness.web_server import Client, write_config

from rq.access.tokens import Tokens
from rq.config import files, passwords
from rq.layout import Root

pytestmark = pytest.mark.process


@pytest.fixture
def root(tmp_path):
    files.make_root(Root(tmp_path))
    write_config(tmp_path, 3333)
    return Root(tmp_path)


def create(root, *words):
    done = rq("token", "create", *words, root=root.path)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_secret_stands_alone_on_standard_output_and_is_shown_once(root):
    done = rq("token", "create", "ci", "--queue", "mail-*", root=root.path)
    secret = done.stdout.removesuffix("\n")
    assert secret.startswith("rq_")
    assert "\n" not in secret
    assert "ci is producer for mail-* until it is revoked" in done.stderr
    principal = Tokens(root).principal(secret, time.time())
    assert principal.queues == ("mail-*",)
    for shown in (rq("token", "ls", root=root.path).stdout, root.tokens.read_text()):
        assert secret not in shown
    assert secret not in (root.log / "audit.log").read_text()


def test_a_token_may_last_for_seconds_and_its_end_is_said_by_the_second(root):
    said = rq("token", "create", "a", "--for", "90s", root=root.path).stderr
    listed = rq("token", "ls", "--json", root=root.path).stdout
    end = time.localtime(json.loads(listed)[0]["end"])
    assert time.strftime("until %Y-%m-%d %H:%M:%S", end) in said


def test_the_list_tells_role_queues_and_end(root):
    create(root, "a", "--role", "viewer", "--for", "30d")
    create(root, "b", "--role", "admin", "--until", "2100-01-31")
    rows = json.loads(rq("token", "ls", "--json", root=root.path).stdout)
    assert [(row["name"], row["role"], row["ended"]) for row in rows] == [
        ("a", "viewer", False),
        ("b", "admin", False),
    ]
    assert abs(rows[0]["end"] - rows[0]["created"] - 30 * 86400) < 60
    assert "sha256" not in rows[0]
    table = rq("token", "ls", root=root.path).stdout
    assert "2100-01-31" in table


def test_a_worker_is_told_where_it_may_send_too(root):
    words = ("w", "--role", "worker", "--queue", "mail", "--sends", "audit")
    done = rq("token", "create", *words, root=root.path)
    assert "w is worker for mail and sends to audit until" in done.stderr
    [row] = json.loads(rq("token", "ls", "--json", root=root.path).stdout)
    assert (row["role"], row["queues"], row["sends"]) == ("worker", ["mail"], ["audit"])


def test_what_is_done_to_tokens_is_in_the_audit_log(root):
    create(root, "ci", "--role", "operator")
    assert rq("token", "revoke", "ci", root=root.path).returncode == 0
    made, revoked = (root.log / "audit.log").read_text().splitlines()
    assert 'what="rq token create ci (operator)"' in made
    assert 'what="rq token revoke ci"' in revoked


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("create", "a b"), 2, "cannot be the name of a token"),
        (("create", "x", "--role", "king"), 2, "invalid choice: 'king'"),
        (("create", "x", "--queue", ""), 2, "pattern"),
        (("create", "x", "--for", "soon"), 2, "not a duration"),
        (("create", "x", "--for", "0"), 2, "would never be valid"),
        (("create", "x", "--until", "2001-01-01"), 2, "would never be valid"),
        (("create", "x", "--until", "someday"), 2, "not a time"),
        (("create", "x", "--for", "1d", "--until", "2100-01-01"), 2, "not allowed"),
        (("revoke", "none"), 2, "there is no token 'none'"),
    ],
)
def test_what_is_wrong_is_one_sentence(root, words, code, said):
    done = rq("token", *words, root=root.path)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not root.tokens.exists()


def test_a_damaged_file_is_told_by_the_list_and_left_as_it_is(root):
    root.tokens.write_text("{")
    for words in (("ls",), ("create", "x"), ("revoke", "x")):
        done = rq("token", *words, root=root.path)
        assert done.returncode == 1, words
        assert str(root.tokens) in done.stderr
        assert done.stderr.count("\n") == 1
    assert root.tokens.read_text() == "{"


AS_ANOTHER = """
import gettext, locale, os, sys  # the first two before the files of Python may be closed
from pathlib import Path
from rq import cli
from rq.layout import Root
from rq.cli import token
from rq.config import files
os.setgroups([])
os.setgid(4321)
os.setuid(4321)
sys.exit(cli.guarded(lambda: token.token(Root(Path(sys.argv[1])), sys.argv[2:])))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user -> run as root")
@pytest.mark.parametrize("words", [("ls",), ("create", "x"), ("revoke", "ci")])
def test_another_user_learns_that_these_tokens_are_not_theirs(root, words):
    create(root, "ci")
    for directory in (root.path, *root.path.parents):
        if directory.is_relative_to("/tmp") and directory != Path("/tmp"):
            directory.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER, str(root.path), *words],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.count("\n") == 1
    assert "run this as the user whose RQ it is" in done.stderr


def test_status_and_doctor_tell_what_is_open_or_over(root):
    write_config(root.path, 3333, open_without_auth=True)
    create(root, "old", "--until", "2100-01-01")
    data = json.loads(root.tokens.read_text())
    data["tokens"][0]["end"] = 1.0
    files.write_state(root.tokens, data)
    for words in (("status",), ("doctor", "--quick")):
        said = rq(*words, root=root.path).stdout
        assert "open_without_auth: whoever can connect on this machine" in said, words
        assert "the token old has ended" in said, words
    root.tokens.write_text("{")
    facts = json.loads(rq("status", "--json", root=root.path).stdout)
    assert any("no token is accepted" in text for text in facts["warnings"])


def test_a_password_over_plain_http_beyond_this_machine_is_warned_of(root):
    users = {"users": {"ann": passwords.make("x")}}
    write_config(root.path, 3333, addr="0.0.0.0", basic_auth=users)
    said = rq("status", root=root.path).stdout
    assert "basic_auth over plain HTTP on 0.0.0.0:3333" in said
    write_config(root.path, 3333, basic_auth=users)
    assert "warning" not in rq("status", root=root.path).stdout


def test_an_address_that_signs_in_is_for_an_rq_that_runs(root):
    done = rq("open", root=root.path)
    assert (done.returncode, done.stdout) == (6, "")
    assert "RQ is not running" in done.stderr


@pytest.mark.slow
def test_rq_up_and_rq_open_print_an_address_that_signs_in_where_a_login_is_needed(
    tmp_path,
):
    users = {"users": {"ann": passwords.make("x")}}
    files.make_root(Root(tmp_path))
    write_config(tmp_path, free_port(), basic_auth=users)
    with running(tmp_path) as path:
        up = rq("up", "--no-samples", root=path).stdout
        [line] = [line for line in up.splitlines() if "signing in once" in line]
        opened = rq("open", root=path).stdout.strip()
        for address in (line.rpartition(" ")[2], opened):
            answer = address_answer(address)
            assert answer.status == 303, address
            assert answer.headers["set-cookie"].startswith("rq_login_")
            assert address_answer(address).status == 401, "it was used"


@pytest.mark.slow
def test_the_address_that_a_browser_is_started_with_is_for_its_user_alone(tmp_path):
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {seen}\n')
    browser.chmod(0o755)
    files.make_root(Root(tmp_path / "root"))
    write_config(tmp_path / "root", free_port())
    with running(tmp_path / "root") as path:
        rq("up", "--no-samples", root=path)
        opened = rq("open", "--browser", root=path, env={"BROWSER": str(browser)})
        assert opened.returncode == 0, opened.stderr
        [key] = Root(path).once.iterdir()
        assert json.loads(key.read_text())["uid"] == os.getuid()
        assert address_answer(seen.read_text()).status == 303


@pytest.mark.slow
def test_no_browser_is_started_with_an_address_that_is_good_for_all(tmp_path):
    files.make_root(Root(tmp_path))
    users = {"users": {"ann": passwords.make("x")}}
    write_config(tmp_path, free_port(), addr="0.0.0.0", basic_auth=users)
    with running(tmp_path) as path:
        rq("up", "--no-samples", root=path)
        done = rq("open", "--browser", root=path, env={"BROWSER": "false"})
    assert (done.returncode, done.stdout) == (4, "")
    assert "open what `rq open` prints" in done.stderr


def address_answer(address):
    parts = urlsplit(address)
    return Client(parts.port).get(f"{parts.path}?{parts.query}")
