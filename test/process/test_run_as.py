"""Scripts that run as another user: what they are, what they get, what is closed to them."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from harness.queues import running_queue
from harness.users import GROUP, NOBODY, OTHER, OTHER_GROUP, open_root
from harness.waiting import wait_until

from rq.errors import NotPlain
from rq.proc import processes
from rq.spool import folders
from rq.words.states import State

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def queue():
    with (
        open_root() as root,
        running_queue(root, user=NOBODY, num_workers=2) as queue,
    ):
        yield queue


def said(queue, script):
    """Return what a script prints that runs as another user."""
    message = queue.run(param1=f"exec 2>&1\n{script}\necho done >&3")
    assert message["state"] == "done", (message, queue.output(message["msg_id"]))
    lines = queue.output(message["msg_id"]).splitlines()
    return [line for line in lines if " - RQ " not in line and line]


def test_a_script_has_the_user_and_groups_of_its_queue(queue):
    assert said(queue, "id -u; id -g; id -G") == [str(NOBODY), str(GROUP), str(GROUP)]


def test_its_environment_is_that_of_its_user(queue):
    shown = said(queue, 'echo "$HOME $USER $LOGNAME $SHELL"')
    assert shown == ["/nonexistent nobody nobody /usr/sbin/nologin"]


def test_it_works_in_a_directory_of_its_own_and_may_open_its_pipes_again(queue):
    shown = said(
        queue,
        'echo x > file; cd /; cat "$RQ_MSG_DIR/file"; echo again >> /dev/stderr; '
        "echo run half >> /proc/self/fd/3",
    )
    assert shown == ["x", "again"]
    assert said(
        queue, "grep -i ^Cap /proc/self/status | cut -f2 | sort -u | head -1"
    ) == ["0000000000000000"]


CLOSED = {
    "its own record": 'echo x >> "$RQ_MSG_DIR/../msg"',
    "to read it": 'cat "$RQ_MSG_DIR/../msg"',
    "its status": 'echo x > "$RQ_MSG_DIR/../status"',
    "the names in its folder": 'ls "$RQ_MSG_DIR/.."',
    "to rename its folder": 'mv "$RQ_MSG_DIR/.." "$RQ_MSG_DIR/../../x"',
    "to replace its directory": 'rmdir "$RQ_MSG_DIR"',
    "the other messages": 'ls "$RQ_ROOT/queue/t/run"',
    "the journal": 'ls "$RQ_ROOT/queue/t/journal"',
    "what waits": 'ls "$RQ_ROOT/queue/t/que"',
    "its config": 'echo "{}" > "$RQ_ROOT/queue/t/config.json"',
    "the socket": 'python3 -c \'import socket,os; socket.socket(1).connect(os.environ["RQ_ROOT"]+"/queue/t/queue.sock")\'',
    "tokens": 'ls "$RQ_ROOT/config/attempts"',
    "the door": 'mkdir "$RQ_ROOT/queue/t/new/x"',
    "leases": 'ls "$RQ_ROOT/queue/t/lease"',
}


@pytest.mark.parametrize("what", CLOSED)
def test_all_else_of_rq_is_closed_to_it(queue, what):
    assert said(queue, f"({CLOSED[what]}) >/dev/null 2>&1 || echo closed") == ["closed"]


def test_a_queue_whose_config_others_may_write_starts_nothing():
    with open_root() as root, running_queue(root, user=NOBODY) as queue:
        if queue:
            queue.dir.config.chmod(0o664)
            queue.restart()
            msg_id = queue.send(param1="echo done >&3")
            wait_until(lambda: queue.ok("detail")["oper"] == "SCRIPTERROR")
            why = queue.ok("detail")["reason"]
            assert why == (
                "user is 65534, and that is obeyed only from a config that root alone may "
                f"write: others than root may write {queue.dir.config}: chmod go-w "
                f"{queue.dir.config}"
            )
            assert queue.state(msg_id) == "que"
            queue.dir.config.chmod(0o644)
            assert queue.ended(msg_id)["state"] == "done"
            os.chown(queue.dir.path, OTHER, -1)
            queue.restart()
            msg_id = queue.send(param1="echo done >&3")
            wait_until(lambda: queue.ok("detail")["oper"] == "SCRIPTERROR")
            assert "belongs to 65533: chown root" in queue.ok("detail")["reason"]
            os.chown(queue.dir.path, 0, -1)
            assert queue.ended(msg_id)["state"] == "done"


def test_an_umask_and_no_new_rights():
    with (
        open_root() as root,
        running_queue(root, user=NOBODY, umask="077", no_new_privs=True) as queue,
    ):
        assert said(queue, "umask; grep NoNewPrivs /proc/self/status | cut -f2") == [
            "0077",
            "1",
        ]


def test_its_attachments_are_copies_that_its_group_can_read(queue, tmp_path):
    file = tmp_path / "file"
    file.write_text("content\n")

    def prepared():
        return queue.ok(
            "prep_message",
            {
                "dest": "t",
                "param1": "exec 2>&1; cat ../attach/file; echo x >> ../attach/file || echo closed; echo done >&3",
            },
        ).rpartition("/")[2]

    msg_id = prepared()
    queue.ok(
        "attach_message", {"msg_id": msg_id, "pathname": str(file), "name": "file"}
    )
    os.link(
        queue.dir.path / "prep" / msg_id / "attach/file", root_link := tmp_path / "link"
    )
    queue.ok("commit_message", {"msg_id": msg_id})
    assert queue.ended(msg_id)["state"] == "done"
    assert "content\n" in queue.output(msg_id)
    assert "closed" in queue.output(msg_id)
    attached = (queue.folder(msg_id) / "attach/file").stat()
    assert (attached.st_nlink, attached.st_uid, attached.st_gid) == (1, 0, GROUP)
    assert stat.S_IMODE(attached.st_mode) == 0o440
    assert root_link.stat().st_nlink == 1


PLANTS = {
    "a link to what only root reads": "rm stdio.log; ln -s /etc/shadow stdio.log",
    "a fifo": "rm stdio.log; mkfifo stdio.log",
    "a directory": "rm stdio.log; mkdir stdio.log",
    "a link in the place of a directory": "ln -s /etc sub",
}


@pytest.mark.parametrize("what", PLANTS)
def test_what_it_plants_leads_rq_nowhere(queue, what):
    shadow = Path("/etc/shadow").stat()
    again = "[ $RQ_COUNT = 0 ] || { echo hello; echo done >&3; exit; }\n"
    msg_id = queue.send(param1=f"{again} {PLANTS[what]}; echo resend 0-x >&3")
    assert queue.ended(msg_id)["state"] in ("done", "err")
    now = Path("/etc/shadow").stat()
    assert (now.st_size, now.st_uid, now.st_mtime_ns, now.st_ctime_ns) == (
        shadow.st_size,
        shadow.st_uid,
        shadow.st_mtime_ns,
        shadow.st_ctime_ns,
    )
    for inner in ("job/sub/shadow", "job/sub"):
        with pytest.raises(OSError, match=r".+"):
            opened(queue, msg_id, inner)
    if queue.state(msg_id) == "err":
        queue.ok("delete_message", {"msg_id": msg_id})


def opened(queue, msg_id, inner):
    """Open a file of a message as RQ's pages do; the caller closes it."""
    queue.ok("check")
    state = State(queue.state(msg_id))
    return folders.file_of(queue.dir, state, msg_id, inner).open()


@pytest.fixture
def secret(queue):
    """A file of root in a directory of the script's user."""
    place = queue.root.path / "home"
    place.mkdir()
    (place / "secret").write_text("of root\n")
    (place / "secret").chmod(0o600)
    os.chown(place, NOBODY, GROUP)
    yield place / "secret"
    shutil.rmtree(place)


def test_a_file_of_root_that_it_moves_to_its_directory_is_not_shown(queue, secret):
    msg_id = queue.send(
        param1=f"echo mine > mine; mv {secret} shown; mkdir in; mv shown in; ln -s in/shown l; echo done >&3"
    )
    assert queue.ended(msg_id)["state"] == "done"
    assert (queue.folder(msg_id) / "job/in/shown").read_text() == "of root\n"
    os.close(opened(queue, msg_id, "job/mine"))
    for inner in ("job/in/shown", "job/l"):
        with pytest.raises(NotPlain):
            opened(queue, msg_id, inner)


def test_a_file_of_root_in_the_place_of_its_log_is_neither_written_nor_given_away(
    queue, secret
):
    again = "[ $RQ_COUNT = 0 ] || { echo hello; echo done >&3; exit; }\n"
    plant = f"rm stdio.log; mv {secret} stdio.log"
    msg_id = queue.send(param1=f"{again} {plant}; echo resend 0-x >&3")
    assert queue.ended(msg_id)["state"] == "done"
    aside = queue.folder(msg_id) / "job/stdio.1.log"
    assert aside.read_text() == "of root\n"
    assert aside.stat().st_uid == 0
    assert "hello" in queue.output(msg_id)


@pytest.mark.parametrize(
    ("user", "group", "seen"), [(OTHER, OTHER_GROUP, OTHER), ("", "", 0)]
)
def test_another_user_of_the_queue_gets_a_directory_of_its_own(user, group, seen):
    with open_root() as root, running_queue(root, user=NOBODY) as queue:
        again = "[ $RQ_COUNT = 0 ] || { id -u; ls -A; echo done >&3; exit; }\n"
        msg_id = queue.send(param1=f"{again} echo x > mine; echo resend 2-x >&3")
        wait_until((queue.dir.path / "que" / msg_id / "job/mine").exists)
        queue.configure(user=user, group=group)
        queue.restart()
        assert queue.ended(msg_id)["state"] == "done"
        lines = queue.output(msg_id).splitlines()
        assert [line for line in lines if line and " - RQ " not in line] == [
            str(seen),
            "stdio.log",
        ]
        folder = queue.folder(msg_id)
        assert (folder / "job.1/mine").read_text() == "x\n"
        assert (folder / "job").stat().st_uid == seen
        assert stat.S_IMODE(folder.stat().st_mode) == (0o710 if seen else 0o750)


def test_what_it_leaves_behind_is_ended(queue):
    msg_id = queue.send(
        param1="(exec 963>&-; exec setsid sleep 300) & echo $! > pid; (trap '' TERM; sleep 301) & echo done >&3"
    )
    assert queue.ended(msg_id)["state"] == "done"
    pid = int((queue.folder(msg_id) / "job/pid").read_text())
    if processes.state_letter(pid) not in (None, "Z"):  # as of any script that goes on
        os.kill(pid, 9)
    again = "[ $RQ_COUNT = 0 ] || { echo done >&3; exit; }\n"
    msg_id = queue.send(
        param1=f"{again}(exec 963>&-; exec setsid sleep 302) & echo $! > pid; echo resend 0-x >&3"
    )
    assert queue.ended(msg_id)["state"] == "done"
    pid = int((queue.folder(msg_id) / "job/pid").read_text())
    assert processes.state_letter(pid) in (None, "Z")


HAND_OVER = """
import array, os, socket, sys, time
if sys.argv[1] == "take":  # a service of another user, which takes what it is sent
    os.setresgid(65533, 65533, 65533); os.setresuid(65533, 65533, 65533)
    sock = socket.socket(socket.AF_UNIX); sock.bind(b"\\0" + sys.argv[2].encode()); sock.listen()
    print("ready", flush=True)
    conn, _ = sock.accept()
    held = socket.recv_fds(conn, 1, 4)[1]
    print("taken", flush=True)
    time.sleep(300)
"""
GIVE = """python3 -S -c '
import socket
s = socket.socket(socket.AF_UNIX); s.connect(b"\\0{name}")
socket.send_fds(s, [b"x"], [963]); s.recv(1) if 0 else None
import time; time.sleep(0.3)
' 2>&1; echo done >&3"""


@pytest.mark.slow
def test_a_service_that_is_handed_its_lease_is_not_ended(queue, tmp_path):
    """The message waits in run for the slot; nobody else is hurt by it."""
    name = f"rq-{os.getpid()}"
    words = [sys.executable, "-c", HAND_OVER, "take", name]
    said = tmp_path / "said"
    with said.open("wb") as file, subprocess.Popen(words, stdout=file) as service:
        try:
            wait_until(lambda: said.read_text() == "ready\n")
            msg_id = queue.send(param1=GIVE.format(name=name))
            wait_until(lambda: said.read_text() == "ready\ntaken\n")
            wait_until(lambda: queue.ok("detail")["held"])
            assert queue.ok("detail")["held"][0]["msg_id"] == msg_id
            assert service.poll() is None
        finally:
            service.kill()
    assert queue.ended(msg_id)["state"] == "done"


def test_a_token_that_cannot_be_written_costs_no_descriptor():
    with open_root() as root, running_queue(root, user=NOBODY) as queue:
        queue.run(param1="echo done >&3")
        before = len(os.listdir(f"/proc/{queue.pid}/fd"))
        shutil.rmtree(queue.root.attempt_tokens)
        queue.root.attempt_tokens.touch()
        msg_id = queue.send(param1="echo done >&3")
        wait_until(lambda: queue.ok("detail")["oper"] == "SCRIPTERROR")
        # The connections of those who ask come and go.
        wait_until(lambda: len(os.listdir(f"/proc/{queue.pid}/fd")) <= before)
        queue.root.attempt_tokens.unlink()
        queue.ok("run_message", {"msg_id": msg_id})
        assert queue.ended(msg_id)["state"] == "done"
