"""Attachments over the control socket: what is taken, and what is refused."""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harness.checkout import CHECKOUT
from harness.processes import end
from harness.queues import ask_at_once, running_queue, short
from harness.waiting import wait_until

from rq.kinds import Kind
from rq.rpc import client, wire

pytestmark = pytest.mark.process
CONTENT = b"a picture of a cat\n" * 5000


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running_queue(tmp_path_factory.mktemp("root")) as queue:
        yield queue


@pytest.fixture
def queue(shared):
    yield shared
    shared.check()


@pytest.fixture
def msg_id(queue):
    asked = {"dest": "t", "param1": "ls -l ../attach; echo done >&3"}
    made = short(queue.ok("prep_message", asked))
    yield made
    queue.ask("commit_message", {"msg_id": made})
    queue.ended(made)


@pytest.fixture
def cat(tmp_path):
    path = tmp_path / "cat photo.jpg"
    path.write_bytes(CONTENT)
    return path


def attach(queue, msg_id, path, **more):
    asked = {"msg_id": msg_id, "pathname": str(path), **more}
    return queue.ask("attach_message", asked)


def test_a_file_is_copied_with_its_digests_and_locked(queue, msg_id, cat):
    md5 = hashlib.md5(CONTENT).hexdigest()
    assert attach(queue, msg_id, cat) == ["ok", f"{md5}-Attached successfully"]
    cat.write_bytes(b"changed afterwards")
    known = queue.get(msg_id)["_attachments"]["cat photo.jpg"]
    assert known["md5"] == md5
    assert known["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert known["size"] == len(CONTENT)
    stored = Path(known["path"])
    assert stored.read_bytes() == CONTENT
    assert stored.stat().st_mode & 0o777 == 0o440
    queue.ok("commit_message", {"msg_id": msg_id})
    message = queue.ended(msg_id)
    assert "cat photo.jpg" in queue.output(msg_id)
    assert Path(message["_attachments"]["cat photo.jpg"]["path"]).exists()


def test_the_same_name_again_replaces(queue, msg_id, cat):
    attach(queue, msg_id, cat, name="x")
    cat.write_bytes(b"second")
    md5 = hashlib.md5(b"second").hexdigest()
    assert attach(queue, msg_id, cat, name="x")[1].startswith(md5)
    known = queue.get(msg_id)["_attachments"]
    assert list(known) == ["x"]
    assert Path(known["x"]["path"]).read_bytes() == b"second"


def test_a_passed_descriptor_is_read_whatever_its_path_says(queue, msg_id, cat):
    with cat.open("rb") as file:
        asked = {"msg_id": msg_id, "pathname": "/nowhere/at/all", "name": "x"}
        reply = queue.ask("attach_message", asked, fds=(file.fileno(),))
    assert reply[0] == "ok"
    assert queue.get(msg_id)["_attachments"]["x"]["size"] == len(CONTENT)


def test_an_attachment_can_be_taken_off_again(queue, msg_id, cat):
    attach(queue, msg_id, cat, name="x")
    asked = {"msg_id": msg_id, "attachment_name": "x"}
    answer = "Attachment deleted successfully"
    assert queue.ok("delete_attach_message", asked) == answer
    assert "_attachments" not in queue.get(msg_id)
    assert queue.refused("delete_attach_message", asked) == "there is no attachment x"


REFUSED = {
    "a relative path": ({"pathname": "cat.jpg"}, "pathname is not an absolute path"),
    "no path": ({}, "pathname is not an absolute path"),
    "a path of another type": ({"pathname": 5}, "pathname is not an absolute path"),
    "a missing file": ({"pathname": "/nowhere/x"}, "/nowhere/x: No such file"),
    "a directory": ({"pathname": "/etc"}, "not a regular file"),
    "a device": ({"pathname": "/dev/zero"}, "not a regular file"),
    "a path with a NUL": ({"pathname": "/etc/\0", "name": "x"}, "pathname"),
    "a name that is hidden": ({"pathname": "/etc/passwd", "name": ".x"}, "attachment "),
    "a name that climbs": ({"pathname": "/etc/passwd", "name": "/../f"}, "attachment "),
    "a name with a slash": ({"pathname": "/etc/passwd", "name": "a/b"}, "attachment "),
    "a name of two lines": ({"pathname": "/etc/passwd", "name": "a\nb"}, "attachment "),
    "a name with a line": ({"pathname": "/etc/passwd", "name": "a\nb"}, "attachment "),
    "a name too long": ({"pathname": "/etc/passwd", "name": "x" * 251}, "attachment "),
    "a name of another type": ({"pathname": "/etc/passwd", "name": [1]}, "attachment "),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_attachment_is_refused_with_the_reason(queue, msg_id, what):
    asked, text = REFUSED[what]
    answer = queue.refused("attach_message", {"msg_id": msg_id, **asked})
    assert answer.startswith(text)
    assert "_attachments" not in queue.get(msg_id)


def test_a_fifo_and_a_socket_are_refused_at_once(queue, msg_id, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "sock"))
        for name in ("fifo", "sock"):
            assert attach(queue, msg_id, tmp_path / name)[0] == "fail"


def test_only_a_message_in_prep_takes_attachments(queue, cat):
    msg_id = queue.run(param1="echo done >&3")["msg_id"]
    assert attach(queue, msg_id, cat) == ["fail", "msg already commited"]
    asked = {"msg_id": msg_id, "attachment_name": "x"}
    assert queue.refused("delete_attach_message", asked) == "msg not in prep"
    nobody = "20200101.0000.00.000.1"
    assert attach(queue, nobody, cat) == ["fail", "cannot find message"]


def test_an_attachment_cut_behind_rqs_back_is_noticed_at_the_commit(queue, msg_id, cat):
    attach(queue, msg_id, cat, name="x")
    path = Path(queue.get(msg_id)["_attachments"]["x"]["path"])
    path.chmod(0o600)
    path.write_bytes(b"cut")
    text = queue.refused("commit_message", {"msg_id": msg_id})
    assert text == "attachment x is not whole; attach it again"
    assert attach(queue, msg_id, cat, name="x")[0] == "ok"


def test_a_prepared_message_with_attachments_survives_a_restart(tmp_path, cat):
    with running_queue(tmp_path / "root") as queue:
        asked = {"dest": "t", "param1": "cat ../attach/x | wc -c; echo done >&3"}
        msg_id = short(queue.ok("prep_message", asked))
        attach(queue, msg_id, cat, name="x")
        queue.crash()
        queue.start()
        assert queue.ok("commit_message", {"msg_id": msg_id}) == "msg commited"
        again = queue.ok("commit_message", {"msg_id": msg_id})
        assert again == "msg already commited"
        assert queue.ended(msg_id)["state"] == "done"
        assert str(len(CONTENT)) in queue.output(msg_id)


def test_a_file_that_is_not_what_was_sent_is_refused_and_leaves_nothing(
    queue, msg_id, cat
):
    attach(queue, msg_id, cat, name="x")
    answer = attach(queue, msg_id, cat, name="y", sha256="0" * 64)
    assert answer == ["fail", "attachment y is not whole; attach it again"]
    assert os.listdir(queue.dir.path / "prep" / msg_id / "attach") == ["x"]


@pytest.mark.parametrize("way", ["link", "copy"])
def test_clones_share_their_attachments_unless_they_must_not(tmp_path, cat, way):
    with running_queue(tmp_path / "root", clone=way) as queue:
        msg_id = short(
            queue.ok("prep_message", {"dest": "t", "param1": "echo done >&3"})
        )
        attach(queue, msg_id, cat, name="x")
        queue.ok("commit_message", {"msg_id": msg_id})
        queue.ended(msg_id)
        clone = short(queue.ok("clone_message", {"msg_id": msg_id}))
        assert queue.ended(clone)["state"] == "done"
        first, second = (queue.folder(i) / "attach/x" for i in (msg_id, clone))
        assert first.samefile(second) is (way == "link")
        assert second.read_bytes() == CONTENT


def cut(path):
    path.chmod(0o600)
    os.truncate(path, 7)


def linked(path):
    path.unlink()
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("damaged", [Path.unlink, cut, linked])
def test_a_clone_of_a_damaged_file_need_not_be_asked_for_again(shared, cat, damaged):
    msg_id = short(shared.ok("prep_message", {"dest": "t", "param1": "echo done >&3"}))
    attach(shared, msg_id, cat, name="x")
    shared.ok("commit_message", {"msg_id": msg_id})
    shared.ended(msg_id)
    damaged(shared.folder(msg_id) / "attach/x")
    reply = client.ask(shared.dir.socket, "clone_message", {"msg_id": msg_id})
    assert wire.failure_in(reply).kind is Kind.UNREADABLE, reply
    assert shared.ask("num_messages")["prep"] == 0
    shared.ok("delete_message", {"msg_id": msg_id})


STRANGER = """
import os, sys
from pathlib import Path
os.chdir(sys.argv[1])
os.setgroups([])
os.setgid(0)
os.setuid(65534)
from rq.rpc import client
with client.Connection(Path("queue.sock")) as line:
    made = line.ask("prep_message", {"dest": "t", "param1": "echo done >&3"})[1]
    msg_id = made.rpartition("/")[2]
    def attach(path, fds=(), **more):
        asked = {"msg_id": msg_id, "pathname": path, "name": "x", **more}
        return line.ask("attach_message", asked, fds)
    print(attach(sys.argv[2])[:2])
    print(attach("/etc/passwd")[0])
    fd = os.open("/etc/passwd", os.O_RDONLY)
    print(attach(sys.argv[2], [fd])[0])
    fd = os.open(sys.argv[3], os.O_RDONLY)
    told = {"sha256": "0", "md5": "made up", "size": os.fstat(fd).st_size}
    print(attach(sys.argv[3], [fd], digests=told)[1])
    print(line.ask("cancel_message", {"msg_id": msg_id})[0])
    print(line.ask("mind")[1])
    print(line.ask("take_copy", {"queue": "t", "msg_id": msg_id, "message": {}})[1])
    line.ask("commit_message", {"msg_id": msg_id})
"""


def test_a_stranger_attaches_only_what_it_may_read_itself(queue, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("it takes root to be two users -> sudo ./test/run_tests.sh process")
    secret = tmp_path / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    public = tmp_path / "public"
    public.write_bytes(CONTENT)
    for place in (tmp_path, *list(tmp_path.parents)[:3]):
        place.chmod(place.stat().st_mode | 0o011)
    files = (str(queue.dir.path), str(secret), str(public))
    # Read the sources as root: a stranger may not be able to.
    preload = "import rq.rpc.client, rq.rpc.wire, encodings.idna\n"
    ran = subprocess.run(
        [sys.executable, "-c", preload + STRANGER, *files],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = ran.stdout.splitlines()
    assert lines == [
        f"['fail', '{secret}: Permission denied']",
        "ok",
        "ok",
        f"{hashlib.md5(CONTENT).hexdigest()}-Attached successfully",
        "fail",
        "nobody may not ask mind: it is for RQ's own user and root alone",
        "nobody may not ask take_copy: it is for RQ's own user and root alone",
    ], ran.stderr
    assert public.stat().st_nlink == 1, "what it says of a file is not believed"


def test_equal_commits_in_one_turn_accept_it_once(queue, msg_id, cat):
    assert attach(queue, msg_id, cat)[0] == "ok"
    asked = ("commit_message", {"msg_id": msg_id})
    replies = ask_at_once(queue.dir.socket, queue.pid, asked, asked, asked)
    again = ["ok", "msg already commited"]
    assert sorted(replies) == sorted([["ok", "msg commited"], again, again])


@pytest.mark.slow
def test_attachments_that_take_long_hold_up_nobody_else(tmp_path, cat):
    """Each read of the file takes a minute: the journal goes on to other segments, and
    messages are accepted, run and found, long before."""
    if shutil.which("strace") is None:
        pytest.skip("strace is missing -> apt-get install strace")
    slow = ("-e", "inject=pread64:delay_enter=60000000", "-P", str(cat))
    trace = ("strace", "-D", "-f", "-qq", "-o", "/dev/null", *slow)
    with running_queue(tmp_path / "root") as queue:
        queue.stop()
        queue.start(command=trace)
        with contextlib.ExitStack() as stack:
            stack.callback(end, tracer_of(queue.pid))
            for number in range(4):
                made = short(queue.ok("prep_message", {"dest": "t"}))
                line = stack.enter_context(socket.socket(socket.AF_UNIX))
                line.connect(str(queue.dir.socket))
                asked = {"msg_id": made, "pathname": str(cat), "name": f"x{number}"}
                line.sendall(wire.request("attach_message", json.dumps(asked).encode()))
                line.setblocking(False)
            attaches = f"/proc/{queue.pid}/task"
            wait_until(lambda: len(os.listdir(attaches)) > 4)
            for _ in range(3):
                assert queue.run(param1="echo done >&3")["state"] == "done"
                assert queue.ok("seal")["sealed"] is True
            assert len(queue.ok("list", {"state": "done"})) == 3
            with pytest.raises(BlockingIOError):
                line.recv(1)


def tracer_of(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("TracerPid:")[2].split()[0])
