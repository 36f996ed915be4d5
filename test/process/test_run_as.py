"""Scripts that run as another user: what they are, what they get, what is closed to them."""

import os
import stat

import pytest
from harness.queues import running_queue
from harness.users import GROUP, NOBODY, OTHER, open_root
from harness.waiting import wait_until

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
