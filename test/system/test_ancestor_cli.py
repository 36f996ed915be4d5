"""The ancestor's verbs against a running RQ: outputs and exit codes to the letter."""

import hashlib
import os
import re

import pytest
from harness.cli import define, rq, running
from harness.waiting import wait_until

pytestmark = pytest.mark.system

SLEEPER = """#!/bin/sh
echo "run at work" >&3
echo "done done sleeping" >&3
"""
HELD = """#!/bin/sh
echo "run held" >&3
while [ ! -e "$RQ_PARAM1" ]; do sleep 0.05; done
echo "done let go" >&3
"""
ID = r"\d{8}\.\d{4}\.\d{2}\.\d{3}\.\d+"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("ancestor") / "root"
    path.mkdir()
    define(path, "test", SLEEPER)
    define(path, "held", HELD)
    define(path, "relay", HELD)
    with running(path):
        yield path


def ask(root, *words):
    """Run a verb; return (exit code, output) and expect nothing on stderr."""
    done = rq(*words, root=root)
    assert done.stderr == ""
    return done.returncode, done.stdout


def full_id(root, *words):
    code, output = ask(root, *words)
    assert code == 0
    found = re.fullmatch(rf"ok (http://127\.0\.0\.1:\d+/q/\w+/{ID})\n", output)
    assert found, output
    return found[1]


@pytest.mark.slow
def test_sendmesg_answers_ok_and_the_full_id(root):
    msg_id = full_id(root, "sendmesg", "--dest", "test", "--param1=--x", "--src", "me")
    wait_until(lambda: ask(root, "state", "--msg_id", msg_id) == (0, "ok done\n"), 60)
    status = ask(root, "statusmesg", "--msg_id", msg_id)
    assert status == (0, "ok done - done sleeping\n")
    assert ask(root, "statuscountmesg", "--msg_id", msg_id) == (0, "ok 0\n")


def test_sendmesg_takes_a_bare_force_remote_and_a_count(root):
    msg_id = full_id(
        root, "sendmesg", "--force_remote", "--dest=test", "--count", "3", "--due=0"
    )
    assert ask(root, "statuscountmesg", "--msg_id", msg_id) == (0, "ok 3\n")


def test_a_prepared_message_takes_files_and_is_committed_once(root, tmp_path):
    msg_id = full_id(root, "prepmesg", "--dest", "test")
    assert ask(root, "state", "--msg_id", msg_id) == (0, "ok prep\n")
    assert ask(root, "statusmesg", "--msg_id", msg_id) == (0, "ok prep\n")
    file = tmp_path / "cat.jpg"
    file.write_bytes(b"a cat")
    words = ["attachmesg", "--msg_id", msg_id, "--pathname", str(file)]
    md5 = hashlib.md5(b"a cat").hexdigest()
    said = f"ok {md5}-Attached successfully for Message: {msg_id} attachment\n"
    assert ask(root, *words) == (0, said)
    assert ask(root, *words, "--name", "other.jpg", "--local_fs_only") == (0, said)
    code, listed = ask(root, "attachstatusmesg", "--msg_id", msg_id)
    md5 = hashlib.md5(b"a cat").hexdigest()
    lines = listed.splitlines()
    assert (code, lines[0]) == (0, "ok 2")
    assert [line.split(" ")[:3] for line in lines[1:]] == [
        ["cat.jpg", md5, "5"],
        ["other.jpg", md5, "5"],
    ]
    for line in lines[1:]:
        path = line.split(" ", 3)[3]
        assert os.path.isabs(path)
        with open(path, "rb") as attached:
            assert attached.read() == b"a cat"
    committed = ask(root, "commitmesg", "--msg_id", msg_id)
    assert committed == (0, "ok msg commited\n")


def test_a_relative_pathname_is_meant_from_where_the_caller_is(root, tmp_path):
    (tmp_path / "here.txt").write_text("x")
    msg_id = full_id(root, "prepmesg", "--dest", "test")
    done = rq(
        *("attachmesg", "--msg_id", msg_id, "--pathname", "here.txt"),
        root=root,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_attachment_that_cannot_be_taken_is_a_fail_and_exit_1(root, tmp_path):
    msg_id = full_id(root, "prepmesg", "--dest", "test")
    missing = rq(
        *("attachmesg", "--msg_id", msg_id, "--pathname", tmp_path / "none"), root=root
    )
    assert missing.returncode == 1
    file = tmp_path / "f"
    file.write_text("x")
    code, output = ask(
        root,
        *("attachmesg", "--msg_id", msg_id, "--pathname", str(file)),
        *("--name", "../../escape"),
    )
    assert code == 1
    assert output.startswith("fail ")
    assert output.endswith(f" for Message: {msg_id} attachment\n")


def test_clone_answers_with_a_new_full_id(root):
    msg_id = full_id(root, "sendmesg", "--dest", "test", "--param1", "x")
    wait_until(lambda: ask(root, "state", "--msg_id", msg_id) == (0, "ok done\n"), 60)
    assert full_id(root, "clone", "--msg_id", msg_id) != msg_id


def test_single_que_answers_the_id_of_the_one_that_waits(root, tmp_path):
    words = ["single_que", "--dest", "held", "--due", "4102444800", "--param1", "a"]
    assert full_id(root, *words) == full_id(root, *words)


def test_a_destination_on_a_host_goes_to_the_local_relay_when_allowed(root):
    dest = "http://other.example.com:3333/q/x"
    msg_id = full_id(
        root, "sendmesg", "--dest", dest, "--relay-ok", "--due", "4102444800"
    )
    assert "/q/relay/" in msg_id
    refused = rq("sendmesg", "--dest", dest, root=root)
    assert refused.returncode == 1
    assert "--relay-ok" in refused.stderr


def test_what_nobody_knows_is_a_fail_and_exit_1(root):
    nobody = "http://h/q/test/20200101.0000.00.000.1"
    for verb in ("state", "statusmesg", "commitmesg", "clone", "attachstatusmesg"):
        code, output = ask(root, verb, "--msg_id", nobody)
        assert (code, output[:5]) == (1, "fail ")
