"""What a script finds when it starts: the ancestor's environment, and nothing else."""

import json
import os
import re
import sys
from datetime import datetime

import pytest
from harness.processes import lives
from harness.queues import SCRIPTS, SETTINGS, RunningQueue, kept, running_queue
from harness.waiting import wait_until

from rq.scripts import environment

pytestmark = pytest.mark.process
DESCRIPTORS = {"0", "1", "2", "3", "4", "963"}


def found(queue, **fields):
    """Run the script `describe` once; return the message and what the script saw."""
    message = queue.run(**fields)
    assert message["state"] == "done", message["status"]
    path = queue.folder(message["msg_id"]) / "job/found.json"
    return message, json.loads(path.read_text())


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path, "describe") as one:
        yield one


def test_a_script_gets_six_descriptors_whatever_its_daemon_was_started_with(tmp_path):
    queue = RunningQueue(tmp_path, "t", "describe")
    many = "exec 5</dev/null 6</dev/null 10</dev/null 251</dev/null 964</dev/null"
    source, sink = os.pipe()
    try:
        queue.start(("bash", "-c", f'{many}; exec "$@"', "-"), stdin=source)
        message, saw = found(queue)
        listing = saw["fds"].items()
        assert {fd for fd, link in listing if "/fd" not in link} == DESCRIPTORS
        assert saw["fds"]["0"] == os.devnull
        assert saw["fds"]["1"] == saw["fds"]["2"]
        assert saw["fds"]["1"].endswith(f"/run/{message['msg_id']}/job/stdio.log")
        assert saw["fds"]["3"] != saw["fds"]["4"]
        assert saw["fds"]["963"].endswith("/queue/t/lease/0")
        queue.close()
    finally:
        queue.kill()
        os.close(source)
        os.close(sink)


def test_a_script_reads_the_end_of_its_input_and_has_blocking_pipes(queue):
    _, saw = found(queue)
    assert saw["stdin"] == ""
    assert saw["blocking"] == [True, True]


def test_a_script_leads_a_group_of_its_own_and_is_nice(tmp_path, queue):
    _, saw = found(queue)
    assert saw["group"] == saw["pid"]
    # Set right after the start: a script may have asked before.
    message = queue.send()
    assert queue.ended(message)["state"] == "done"
    text = (
        "#!/bin/sh\nfor n in $(seq 500); do nice > found; grep -qx 19 found && break\n"
        "sleep 0.05; done; echo done >&3\n"
    )
    other = RunningQueue(tmp_path, "nice", text)
    del other.settings["nice"]  # what it is where nobody says
    other.configure()
    with kept(other):
        message = other.run()
        assert (other.folder(message["msg_id"]) / "job/found").read_text() == "19\n"


def test_a_script_works_in_its_job_directory(tmp_path, queue):
    message, saw = found(queue)
    place = f"{tmp_path}/queue/t/run/{message['msg_id']}/job"
    assert saw["cwd"] == place
    assert saw["env"]["RQ_MSG_DIR"] == place


def test_every_variable_is_set_as_the_ancestor_did(tmp_path, queue):
    message, saw = found(
        queue,
        param1="one word",
        param2={"deep": [1, None]},
        param4=7,
        count=3,
        force_remote=True,
        src="not exported",
    )
    full_id = f"http://127.0.0.1:3333/q/t/{message['msg_id']}"
    ours = {k: v for k, v in saw["env"].items() if k.startswith("RQ_")}
    lease = ours.pop("RQ_LEASE")
    assert re.fullmatch(r"t/[0-9a-f]{16}/0/\d+\.\d+", lease)
    version = ours.pop("RQ_VER")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", version)
    assert ours == {
        "RQ_ROOT": str(tmp_path),
        "RQ_SCRIPT": str(SCRIPTS / "describe"),
        "RQ_REALSCRIPT": os.path.realpath(SCRIPTS / "describe"),
        "RQ_HOST": "http://127.0.0.1:3333/",
        "RQ_PORT": "3333",
        "RQ_DEST": "http://127.0.0.1:3333/q/t/",
        "RQ_DEST_QUEUE": "t",
        "RQ_MSG_ID": message["msg_id"],
        "RQ_FULL_MSG_ID": full_id,
        "RQ_ORIG_MSG_ID": full_id,
        "RQ_MSG_DIR": f"{tmp_path}/queue/t/run/{message['msg_id']}/job",
        "RQ_WRITE": "3",
        "RQ_READ": "4",
        "RQ_PIPE": "3",
        "RQ_PYTHON": sys.executable,
        "RQ_SHARE": environment.SHARE,
        "RQ_COUNT": "3",
        "RQ_PARAM1": "one word",
        "RQ_PARAM2": '{"deep":[1,null]}',
        "RQ_PARAM3": "",
        "RQ_PARAM4": "7",
        "RQ_FORCE_REMOTE": "1",
        "RQ_ENV": "development",
    }


@pytest.mark.parametrize(
    ("dest", "wanted"),
    [
        (
            "http://other:3333/q/far/20250101.0000.00.000.1",
            {
                "RQ_DEST": "http://other:3333/q/far/20250101.0000.00.000.1",
                "RQ_DEST_QUEUE": "far",
            },
        ),
        ("https://other/nothing", {"RQ_DEST": "https://other/nothing"}),
        (
            "elsewhere",
            {
                "RQ_DEST": "http://127.0.0.1:3333/q/elsewhere/",
                "RQ_DEST_QUEUE": "elsewhere",
            },
        ),
    ],
)
def test_the_destination_is_told_as_a_url_and_as_a_queue(queue, dest, wanted):
    _, saw = found(queue, dest=dest, orig_msg_id="http://first/q/x/1")
    told = {k: v for k, v in saw["env"].items() if k.startswith("RQ_DEST")}
    assert told == wanted
    assert saw["env"]["RQ_ORIG_MSG_ID"] == "http://first/q/x/1"
    assert "RQ_FORCE_REMOTE" not in saw["env"]


def test_the_root_of_urls_is_in_the_variables_that_hold_one(tmp_path):
    (tmp_path / "config").mkdir()
    settings = {**SETTINGS, "relative_root": "/therq", "tmpdir": str(tmp_path)}
    (tmp_path / "config/config.json").write_text(json.dumps(settings))
    with running_queue(tmp_path, "describe") as queue:
        message, saw = found(queue)
    base = "http://127.0.0.1:3333/therq"
    assert saw["env"]["RQ_HOST"] == f"{base}/"
    assert saw["env"]["RQ_DEST"] == f"{base}/q/t/"
    assert saw["env"]["RQ_FULL_MSG_ID"] == f"{base}/q/t/{message['msg_id']}"
    assert saw["env"]["TMPDIR"] == str(tmp_path)


def test_nothing_of_the_shell_that_started_the_daemon_reaches_a_script(tmp_path):
    queue = RunningQueue(tmp_path, "t", "describe")
    queue.env = {
        "SECRET": "of the shell",
        "PATH": f"/nowhere:{os.environ['PATH']}",
        "LANG": "xx_XX",
        "TZ": "Mars/Olympus",
        "RQ_HOST": "http://liar/",
        "RQ_PORT": "1",
        "RUBYOPT": "-w",
        "TMPDIR": str(tmp_path),
    }
    with kept(queue):
        _, saw = found(queue)
    names = {name for name in saw["env"] if not name.startswith("RQ_")}
    # Python adds LC_CTYPE to its own environment where LANG is C.
    assert names - {"LC_CTYPE"} == {
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"
    }  # fmt: skip
    assert "/nowhere" not in saw["env"]["PATH"]
    assert saw["env"]["LANG"] == "C.UTF-8"
    assert saw["env"]["RQ_HOST"] == "http://127.0.0.1:3333/"
    assert saw["env"]["RQ_PORT"] == "3333"


def test_env_vars_of_the_queue_win_but_never_over_rqs_own(tmp_path):
    env_vars = {"LANG": "de_DE", "MINE": 5, "RQ_COUNT": "99", "RQ_NEW": "x"}
    with running_queue(tmp_path, "describe", env_vars=env_vars) as queue:
        _, saw = found(queue)
    assert saw["env"]["LANG"] == "de_DE"
    assert saw["env"]["MINE"] == "5"
    assert saw["env"]["RQ_COUNT"] == "0"
    assert "RQ_NEW" not in saw["env"]


def troubled(path):
    """Return the masks of signals blocked and ignored, but for the C library's two."""
    signals = dict(line.split() for line in path.read_text().splitlines())
    of_libc = 1 << 31 | 1 << 32  # which posix_spawn always ignores
    return int(signals["SigBlk:"], 16), int(signals["SigIgn:"], 16) & ~of_libc


def test_a_broken_pipe_ends_a_script_as_anywhere_and_no_signal_is_blocked(tmp_path):
    text = (
        "#!/bin/bash\nyes | head -1 > said\n"
        'echo "${PIPESTATUS[0]}" > status; grep ^Sig /proc/self/status > signals\n'
        "echo done >&3\n"
    )
    with running_queue(tmp_path, text) as queue:
        message = queue.run()
        job = queue.folder(message["msg_id"]) / "job"
        assert (job / "status").read_text() == "141\n"  # 128 + SIGPIPE
        assert troubled(job / "signals") == (0, 0)


def test_signals_ignored_by_whoever_started_the_daemon_are_not_ignored(tmp_path):
    text = "#!/bin/sh\ngrep ^Sig /proc/self/status > signals; echo done >&3\n"
    queue = RunningQueue(tmp_path, "t", text)
    try:
        queue.start(("env", "--ignore-signal=HUP,QUIT,USR1,CHLD"))
        message = queue.run()
        assert troubled(queue.folder(message["msg_id"]) / "job/signals") == (0, 0)
        queue.close()
    finally:
        queue.kill()


def test_the_link_to_a_script_is_followed_at_every_run(tmp_path):
    for number in (1, 2):
        place = tmp_path / f"release{number}"
        place.mkdir()
        (place / "run").write_text(
            f'#!/bin/sh\necho "done {number} $RQ_REALSCRIPT $RQ_SCRIPT" >&3\n'
        )
        (place / "run").chmod(0o755)
    link = tmp_path / "current"
    link.symlink_to("release1")
    with running_queue(tmp_path / "root", tmp_path / "current/run") as queue:
        for number in (1, 2):
            message = queue.run()
            real = tmp_path / f"release{number}/run"
            said = f"done - {number} {real} {tmp_path}/current/run"
            assert message["status"] == said
            assert f"RQ START - {real}" in queue.output(message["msg_id"])
            link.unlink()
            link.symlink_to("release2")


def test_a_relative_script_lies_in_the_root(tmp_path):
    root = tmp_path / "root"
    (root / "scripts").mkdir(parents=True)
    text = (SCRIPTS / "describe").read_text()
    (root / "scripts/mine").write_text(text)
    (root / "scripts/mine").chmod(0o755)
    with running_queue(root, script="describe", name="t") as queue:
        queue.configure(script="scripts/mine")
        queue.ask("wake")
        _, saw = found(queue)
    assert saw["env"]["RQ_SCRIPT"] == "scripts/mine"
    assert saw["env"]["RQ_REALSCRIPT"] == f"{root}/scripts/mine"


def test_without_a_prefix_a_script_is_started_itself_and_has_no_arguments(queue):
    _, saw = found(queue)
    assert saw["argv"][1:] == [str(SCRIPTS / "describe")]  # behind its interpreter


def test_the_prefix_of_the_ancestor_gives_a_login_shell(tmp_path):
    text = '#!/bin/bash\nshopt -q login_shell || echo "done $0 $#" >&3\n'
    bare = {"HOME": str(tmp_path)}  # not the start-up files of whoever runs the tests
    with running_queue(tmp_path, text, exec_prefix="bash -lc ", env_vars=bare) as queue:
        message = queue.run()
        assert message["status"] == f"done - {queue.script} 0"
    arguments = "#!/bin/sh\nexec /bin/sh -c 'echo \"done $LOGIN\" >&3'\n"
    prefix = "/usr/bin/env LOGIN='two words' "
    with running_queue(tmp_path, arguments, "p", exec_prefix=prefix) as queue:
        assert queue.run()["status"] == "done - two words"


def test_the_log_has_a_header_and_an_end_for_each_attempt(tmp_path):
    text = (
        "#!/bin/sh\necho out $RQ_COUNT; echo err $RQ_COUNT >&2; touch kept.$RQ_COUNT\n"
        "if [ $RQ_COUNT = 1 ]; then kill -9 $$; fi; echo resend 0-again >&3\n"
    )
    with running_queue(tmp_path, text) as queue:
        message = queue.run()
        lines = queue.output(message["msg_id"]).splitlines()
        job = queue.folder(message["msg_id"]) / "job"
        assert (job / "kept.0").exists()
        assert (job / "kept.1").exists()
    assert len(lines) == 10
    for number, run in enumerate((lines[:5], lines[5:])):
        assert run[0] == ""
        pid, when, word, script = run[1].rstrip().split(" - ")
        assert word == "RQ START"
        assert script == str(queue.script)
        began = datetime.strptime(when, "%Y-%m-%d %H:%M:%S %z")
        assert abs(began.timestamp() - message["due"]) < 60
        assert run[2:4] == [f"out {number}", f"err {number}"]
        end = run[4].split(" - ")
        assert end[0] == pid
        assert end[2] == "RQ END"
        assert end[3] == ("exit 0", "SIGKILL")[number]
        assert re.fullmatch(r"\d+\.\d{3} s", end[4])


def test_what_a_message_leaves_is_not_for_others_to_read(queue):
    message, _ = found(queue)
    folder = queue.folder(message["msg_id"])
    for path in (folder, folder / "job"):
        assert path.stat().st_mode & 0o777 == 0o750
    for path in (folder / "msg", folder / "status", folder / "job/stdio.log"):
        assert path.stat().st_mode & 0o777 == 0o640
    assert queue.dir.socket.stat().st_mode & 0o777 == 0o660


def test_no_script_outlives_its_attempt_and_no_descriptor_leaks_in_the_owner(queue):
    def descriptors():
        return len(os.listdir(f"/proc/{queue.pid}/fd"))

    found(queue)
    before = descriptors()
    pids = [found(queue)[1]["pid"] for _ in range(5)]
    wait_until(lambda: descriptors() <= before)
    assert not [pid for pid in pids if lives(pid)]
    assert sys.platform == "linux"
