"""Another user's batches and long-lived workers; crashes; and when RQ refuses to obey."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from harness.queues import RunningQueue, kept, running_queue
from harness.users import GROUP, NOBODY, OTHER, open_root
from harness.waiting import wait_until

from rq.proc import processes

pytestmark = pytest.mark.process
BATCH = r"""#!/bin/bash
exec 2>&1
id -u; pwd -P; stat -c %u .
grep -c msg_id "$RQ_BATCH_FILE"
grep -o '"dir":"[^"]*"' "$RQ_BATCH_FILE" | cut -d'"' -f4 | while read -r dir; do
    cat "$dir/attach/file"; echo x >> "$dir/attach/file" || echo closed
    touch "$dir/job/made"
done
[ ${#RQ_TOKEN} = 67 ] && echo token
rm -f "$RQ_BATCH_FILE"
echo done >&3
"""


@pytest.fixture
def root():
    with open_root() as path:
        yield path


def with_file(queue, tmp_path, **fields):
    (tmp_path / "file").write_text("content\n")
    full_id = queue.ok("prep_message", {"dest": queue.name, **fields})
    msg_id = full_id.rpartition("/")[2]
    told = {"msg_id": msg_id, "pathname": str(tmp_path / "file"), "name": "file"}
    queue.ok("attach_message", told)
    queue.ok("commit_message", {"msg_id": msg_id})
    return msg_id


def test_a_batch_of_another_user(root, tmp_path):
    settings = {"user": NOBODY, "batch": {"max": 2, "wait": 60}}
    with running_queue(root, BATCH, **settings) as queue:
        ids = [with_file(queue, tmp_path) for _ in range(2)]
        for msg_id in ids:
            assert queue.ended(msg_id)["state"] == "done"
        output = queue.output(ids[0])
        for line in (str(NOBODY), "content", "closed", "token", "2"):
            assert line in output.splitlines(), output
        for msg_id in ids:
            assert (queue.folder(msg_id) / "job/made").stat().st_uid == NOBODY
            assert queue.output(msg_id) == output


def test_a_long_lived_worker_of_another_user(root, tmp_path):
    settings = {"user": NOBODY, "worker": "persistent"}
    with running_queue(root, "obey_on", **settings) as queue:
        script = (
            "exec 2>&1; id -u; cd $RQ_MSG_DIR; touch made; cat ../attach/file; "
            "echo ${#RQ_TOKEN} >> /dev/stderr; echo done >&3"
        )
        ids = [with_file(queue, tmp_path, param1=script) for _ in range(3)]
        for msg_id in ids:
            assert queue.ended(msg_id)["state"] == "done"
            output = queue.output(msg_id).splitlines()
            for line in (str(NOBODY), "content", "67"):
                assert line in output, output
            assert (queue.folder(msg_id) / "job/made").stat().st_uid == NOBODY
        left = queue.root.attempt_tokens
        assert list(left.iterdir()) == []


def test_what_a_crash_leaves_of_another_user_is_ended_and_run_again(root):
    with running_queue(root, user=NOBODY) as queue:
        msg_id = queue.send(
            param1="[ $RQ_COUNT = 0 ] || { echo done >&3; exit; }\n"
            "echo $$ > pid; echo $RQ_TOKEN > token; exec sleep 300"
        )
        token = queue.dir.path / "run" / msg_id / "job/token"
        wait_until(lambda: token.read_text().endswith("\n"))
        pid = int((token.parent / "pid").read_text())
        assert len(list(queue.root.attempt_tokens.iterdir())) == 1
        queue.crash()
        assert processes.state_letter(pid) not in (None, "Z")
        queue.start()
        assert processes.state_letter(pid) in (None, "Z")
        assert queue.ended(msg_id)["state"] == "done"
        assert list(queue.root.attempt_tokens.iterdir()) == []


def test_a_copy_that_a_crash_cut_short_is_made_anew(root, tmp_path):
    with running_queue(root, user=NOBODY, num_workers=0) as queue:
        msg_id = with_file(queue, tmp_path, param1="cat ../attach/file; echo done >&3")
        attach = queue.folder(msg_id) / "attach"
        os.link(attach / "file", tmp_path / "shared")
        (attach / ".up-own").write_text("con")
        queue.configure(num_workers=1)
        queue.restart()
        assert queue.ended(msg_id)["state"] == "done"
        assert "content\n" in queue.output(msg_id)
        made = queue.folder(msg_id) / "attach"
        assert os.listdir(made) == ["file"]
        assert (made / "file").stat().st_gid == GROUP
        assert (tmp_path / "shared").stat().st_gid != GROUP


def test_an_attempt_that_is_cancelled_ends_with_all_its_processes(root):
    with running_queue(root, user=NOBODY) as queue:
        msg_id = queue.send(
            param1="trap '' TERM; sleep 300 & echo $! > pid; mv pid told; wait"
        )
        told = queue.dir.path / "run" / msg_id / "job/told"
        wait_until(told.exists)
        pid = int(told.read_text())
        queue.ok("cancel_message", {"msg_id": msg_id})
        assert queue.ended(msg_id)["state"] == "err"
        assert processes.state_letter(pid) in (None, "Z")


REFUSED = {
    "root": ({"user": "root"}, "which has the rights of root"),
    "its number": ({"user": "0"}, "which has the rights of root"),
    "its group": ({"user": NOBODY, "group": "root"}, "which has the rights of root"),
    "nobody's name": ({"user": "no-such-user"}, "there is no user no-such-user"),
    "no such group": (
        {"user": NOBODY, "group": "no-such-group"},
        "there is no group no-such-group",
    ),
    "a number without group": ({"user": OTHER}, "65533 has no entry in passwd"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_obeyed_starts_nothing(root, what):
    settings, why = REFUSED[what]
    with running_queue(root, **settings) as queue:
        msg_id = queue.send(param1="id -u; echo done >&3")
        wait_until(lambda: queue.ok("detail")["oper"] == "SCRIPTERROR")
        assert why in queue.ok("detail")["reason"]
        assert queue.state(msg_id) == "que"
        assert not (queue.dir.path / "que" / msg_id / "job").exists()


def test_a_root_that_is_closed_to_its_user_is_named(root):
    (root / "shut").mkdir(mode=0o700)
    with running_queue(root / "shut", user=NOBODY) as queue:
        queue.send(param1="echo done >&3")
        wait_until(lambda: queue.ok("detail")["oper"] == "SCRIPTERROR")
        shut = root / "shut"
        assert queue.ok("detail")["reason"] == (
            f"user is nobody, to whom {shut} is closed: chmod o+x {shut}"
        )
        shut.chmod(0o711)
        wait_until(lambda: queue.ok("detail")["oper"] == "UP")


def test_the_user_of_a_definition_that_another_may_write_is_not_obeyed(root):
    """scandir copies a definition into a file of root: what it was counts."""
    place = root / "definition"
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"user": "nobody"}))
    queue = RunningQueue(root, "t", "obey", user=NOBODY)
    queue.root.scandir.mkdir()
    (queue.root.scandir / "t").symlink_to(place)
    mark = {"owner": "scandir", "link": str(place)}
    queue.dir.scandir_mark.write_text(json.dumps(mark))
    with kept(queue):
        assert queue.run(param1="echo done >&3")["state"] == "done"
        os.chown(place, NOBODY, -1)
        queue.restart()
        queue.send(param1="echo done >&3")
        wait_until(lambda: queue.ok("detail")["oper"] == "SCRIPTERROR")
        assert (
            f"{place} belongs to nobody: chown root {place}"
            in (queue.ok("detail")["reason"])
        )


def test_an_rq_that_is_not_root_starts_nothing_as_another(root):
    queue = RunningQueue(root, "t", "obey", user="daemon")
    for path in (root, *root.rglob("*")):
        os.chown(path, NOBODY, GROUP)
    queue.start(user=str(NOBODY))
    try:
        queue.send(param1="echo done >&3")
        wait_until(lambda: queue.ok("detail")["oper"] == "SCRIPTERROR")
        assert queue.ok("detail")["reason"] == (
            "user is daemon, and RQ does not run as root: only root can start scripts "
            "as another user"
        )
    finally:
        queue.stop()


def test_an_agent_of_no_root_ignores_it_and_says_so(root):
    code = """
import os, logging
from pathlib import Path
from rq.work import definition
logging.basicConfig(format="%(message)s")
os.setuid(65534)
given = {"user": "nobody", "umask": "077", "num_workers": 2}
definition._leave_out_user(given, Path("/x/config.json"))
print(sorted(given))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['num_workers']\n"
    assert done.stderr == (
        "/x/config.json says user, umask, which an agent ignores: scripts run as the "
        "user who started it\n"
    )


def test_the_doctor_tells_of_each_queue_that_starts_none(root):
    with running_queue(root, user=NOBODY) as queue:
        queue.dir.config.chmod(0o646)
        words = [
            sys.executable,
            "-m",
            "rq.cli",
            "--root",
            str(root),
            "doctor",
            "--quick",
        ]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        assert (
            "queue t starts no script: user is 65534, and that is obeyed only" in said
        )
        assert f"chmod go-w {queue.dir.config}" in said
        queue.dir.config.chmod(0o644)


def test_the_ways_that_are_opened_list_nothing(root):
    with running_queue(root, user=NOBODY) as queue:
        queue.run(param1="echo done >&3")
        for place in (queue.dir.path / "run", queue.dir.path / "batch"):
            assert stat.S_IMODE(place.stat().st_mode) & 0o7 == stat.S_IXOTH


def test_no_variable_reaches_the_program_that_is_still_root(root):
    """A library that the script's user can write must not run as root."""
    (root / "evil").mkdir()
    env_vars = {
        "LC_ALL": str(root / "evil"),
        "NAME": 'it\'s "$HOME" `id`\n\\x',
        "PPID": "7",
    }
    script = (
        "#!/usr/bin/python3\nimport os\n"
        "for name in ('LC_ALL', 'NAME', 'HOME'):\n"
        "    print(ascii(os.environ.get(name)))\n"
        "print([name for name in os.environ if 'LATER' in name])\n"
        "os.write(3, b'done\\n')\n"
    )
    with running_queue(root, script, user=NOBODY, env_vars=env_vars) as queue:
        msg_id = queue.send()
        assert queue.ended(msg_id)["state"] == "done", queue.output(msg_id)
        shown = [ascii(str(root / "evil")), ascii(env_vars["NAME"])]
        lines = queue.output(msg_id).splitlines()
        assert lines[2:6] == [*shown, "'/nonexistent'", "[]"]
    with running_queue(
        root,
        "obey",
        "preloaded",
        user=NOBODY,
        env_vars={"LD_PRELOAD": "/no/such.so", "LD_DEBUG": "files"},
    ) as queue:
        msg_id = queue.send(param1="echo done >&3")
        assert queue.ended(msg_id)["state"] == "done"
        output = queue.output(msg_id)
        assert "/no/such.so" in output
        assert "setpriv" not in output


def test_it_has_no_descriptors_of_rq(root):
    with running_queue(root, user=NOBODY, umask="022", no_new_privs=True) as queue:
        msg_id = queue.send(
            param1="for fd in /proc/self/fd/*; do echo fd ${fd##*/} $(readlink $fd); "
            "done; ps -o sid= -p $$; echo $$; echo done >&3"
        )
        assert queue.ended(msg_id)["state"] == "done"
        shown = queue.output(msg_id).splitlines()
        fds = [line.split()[1:] for line in shown if line.startswith("fd ")]
        kept = {number for number, *target in fds if target}
        assert kept - {"0", "1", "2", "3", "4", "963"} <= {"5", "255"}, fds


def test_no_new_privs_alone_takes_no_other_user(root):
    with running_queue(root, no_new_privs=True, umask="077") as queue:
        msg_id = queue.send(
            param1="id -u; umask; grep NoNewPrivs /proc/self/status; "
            "echo ${RQ_TOKEN-none}; echo done >&3"
        )
        assert queue.ended(msg_id)["state"] == "done"
        shown = queue.output(msg_id).split()
        for word in ("0", "0077", "none", "NoNewPrivs:", "1"):
            assert word in shown


def test_a_worker_that_stays_is_renewed_for_another_user(root):
    with running_queue(root, "obey_on", worker="persistent", user=NOBODY) as queue:
        first = queue.send(param1="id -u; echo done >&3")
        assert queue.ended(first)["state"] == "done"
        queue.configure(user=OTHER, group="65533")
        os.kill(queue.pid, signal.SIGHUP)
        wait_until(lambda: queue.ok("config")["user"] == str(OTHER))
        second = queue.send(param1="id -u; echo done >&3")
        assert queue.ended(second)["state"] == "done"
        assert str(OTHER) in queue.output(second).splitlines()


class WithAccounts(RunningQueue):
    """A queue whose process sees a file of accounts of its own."""

    def start(self):
        accounts = str(self.root.path / "passwd")
        bind = 'mount --bind "$0" /etc/passwd && exec "$@"'
        super().start(("unshare", "-m", "sh", "-c", bind, accounts))

    def account(self, uid):
        """Let the user `worker` have this id."""
        others = Path("/etc/passwd").read_text()
        text = f"{others}worker:x:{uid}:{uid}::/:/bin/sh\n"
        (self.root.path / "passwd").write_text(text)


@pytest.mark.slow
def test_a_worker_that_stays_is_renewed_when_its_account_has_another_id(root):
    queue = WithAccounts(root, "t", "obey_on", worker="persistent", user="worker")
    queue.account(NOBODY)
    with kept(queue):
        first = queue.send(param1="id -u; echo done >&3")
        assert queue.ended(first)["state"] == "done"
        assert str(NOBODY) in queue.output(first).splitlines()
        queue.account(OTHER)

        def is_another():
            sent = queue.send(param1="id -u; echo done >&3")
            assert queue.ended(sent)["state"] == "done"
            return str(OTHER) in queue.output(sent).splitlines()

        wait_until(is_another)


@pytest.mark.parametrize(
    "script",
    [
        "echo forward cleaner >&3",
        "echo dup 0-X-cleaner >&3; read -r x <&4; echo $x; echo done >&3",
    ],
)
def test_it_orders_nothing_of_the_cleaner(root, script):
    with (
        running_queue(root, name="t", user=NOBODY) as queue,
        running_queue(root, name="cleaner", num_workers=0) as cleaner,
    ):
        message = queue.run(param1=script)
        said = message["status"] + queue.output(message["msg_id"])
        assert "cleaner removes messages" in said
        assert "not from scripts" in said
        assert queue.ok("detail")["owed"] == 0
        assert sum(cleaner.ok("detail")["counts"].values()) == 0
