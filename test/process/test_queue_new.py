"""`rq queue new`: an existing command becomes a queue, and no message bends it."""

import json
import os
import signal
import subprocess
import sys

import pytest
from harness.cli import rq
from harness.supervisor import daemon_on
from harness.waiting import wait_until

from rq.builtin import command

pytestmark = pytest.mark.process

TELL = "import json, sys; print(json.dumps({'argv': sys.argv[1:]}))"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with daemon_on(tmp_path_factory.mktemp("new") / "root") as daemon:
        daemon.start()
        daemon.until_up("scandir")
        tell = daemon.root.path / "tell"
        tell.write_text(f"#!{sys.executable} -I\n{TELL}\n")
        tell.chmod(0o755)
        daemon.tell = str(tell)
        yield daemon


def new(daemon, *words, **options):
    done = rq("queue", "new", *words, root=daemon.root.path, **options)
    assert done.returncode == 0, done.stderr
    return done


def refused(daemon, *words, code=2):
    done = rq("queue", "new", *words, root=daemon.root.path)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def ran(daemon, name, **fields):
    """Send a message; return it when it has ended, and what its command printed."""
    word, full_id = daemon.ask_queue(name, "create_message", {"dest": name, **fields})
    assert word == "ok", full_id
    asked = {"msg_id": full_id.rpartition("/")[2]}

    def ended():
        found = daemon.ask_queue(name, "get_message", asked)[1]
        return found if found["state"] in ("done", "err") else None

    wait_until(ended, 60)
    daemon.ask_queue(name, "check")  # its folder has followed
    found = ended()
    log = daemon.root.path / found["path"] / "job" / "stdio.log"
    printed = [one for one in log.read_text().splitlines() if one.startswith("{")]
    return found, json.loads(printed[0]) if printed else None


def test_a_command_that_knows_nothing_of_rq_runs_and_its_exit_counts(daemon):
    said = new(daemon, "plain", "--", "sh", "-c", 'echo "no room"; exit "$1"', "x",
               "{param1}")  # fmt: skip
    assert "rq send plain --follow" in said.stdout
    good, _ = ran(daemon, "plain", param1="0")
    assert (good["state"], good["result"]["cause"]) == ("done", "exited")
    bad, _ = ran(daemon, "plain", param1="3")
    assert (bad["state"], bad["status"]) == ("err", "err - no room")


HOSTILE = [
    "$(touch /tmp/rq-pwned)",
    "`id`; id",
    "a\nb",
    "{param2}",
    "'\" *",
    "é",
    "x" * 9999,
]


def test_what_a_message_brings_is_one_argument_as_it_is(daemon):
    new(daemon, "args", "--", daemon.tell, "--to={param1}", "--", "{param2}")
    for value in HOSTILE:
        found, told = ran(daemon, "args", param1=value, param2="-rf")
        assert found["state"] == "done", found["status"]
        assert told["argv"] == [f"--to={value}", "--", "-rf"]


def test_a_pipe_that_breaks_ends_the_command(daemon):
    told = "echo '{\"SigIgn\": \"'$(sed -n 's/^SigIgn:.//p' /proc/self/status)'\"}'"
    new(daemon, "pipes", "--", "sh", "-c", told)
    ignored = int(ran(daemon, "pipes")[1]["SigIgn"], 16)
    for one in (signal.SIGPIPE, signal.SIGXFSZ):
        assert not ignored & 1 << one - 1


def test_what_would_be_an_option_or_is_missing_never_starts_the_command(daemon):
    new(daemon, "strict", "--", daemon.tell, "-r", "{param1}", "/data/{param2}")
    for fields, why in (
        ({"param1": "-rf", "param2": "x"}, "{param1} would be an option"),
        ({"param1": "x"}, "the command needs param2"),
        ({"param1": "x", "param2": ""}, "the command needs param2"),
    ):
        found, told = ran(daemon, "strict", **fields)
        assert found["state"] == "err"
        assert why in found["status"]
        assert told is None


def test_append_gives_all_that_the_message_has(daemon):
    new(daemon, "all", "--append", "--workers", "2", "--", daemon.tell, "-v")
    _, told = ran(daemon, "all", param1="-rf", param3="a\nb", param4="")
    assert told["argv"] == ["-v", "--", "-rf", "", "a\nb", ""]
    assert ran(daemon, "all")[1]["argv"] == ["-v"]
    assert daemon.ask_queue("all", "config")[1]["num_workers"] == 2


def test_a_command_that_speaks_keeps_its_word(daemon):
    new(daemon, "speaks", "--", "sh", "-c", "echo err by design >&3; exit 0")
    assert ran(daemon, "speaks")[0]["status"] == "err - by design"


def test_a_command_that_went_away_says_so(daemon):
    gone = daemon.root.path / "gone"
    gone.write_text("#!/bin/sh\n")
    gone.chmod(0o755)
    new(daemon, "gone", "--", str(gone))
    gone.unlink()
    found, _ = ran(daemon, "gone")
    assert found["status"] == f"err - {gone} cannot be started: there is no such file"


def test_a_script_without_a_first_line_for_the_kernel_says_what_to_write(daemon):
    plain = daemon.root.path / "plain.sh"
    plain.write_text("echo cron runs me with sh\n")
    plain.chmod(0o755)
    new(daemon, "headless", "--", str(plain))
    found, _ = ran(daemon, "headless")
    assert found["status"].endswith("names no interpreter: let it begin with #!/bin/sh")


def leased(daemon, name, **fields):
    """Send a message and lease it; return the lease, or the reason why there is none."""
    word, said = daemon.ask_queue(name, "create_message", {"dest": name, **fields})
    assert word == "ok", said
    reply = daemon.ask_queue(name, "lease", {"count": 1})[1]
    return reply["leases"][0] if reply["leases"] else reply["why"]


def test_a_command_for_workers_elsewhere_does_not_run_here_and_is_shared(daemon):
    words = ("no-such-program-here", "--to", "{param1}")
    said = new(daemon, "away", "--pull", "--", *words)
    assert "workers elsewhere run no-such-program-here --to" in said.stdout
    assert "/q/away --token-file token" in said.stdout
    assert "listens for this machine alone" in said.stderr
    config = daemon.ask_queue("away", "config")[1]
    assert (config["num_workers"], config["success"]) == (0, "exit")
    assert config["pull"]["share_script"] is True
    assert leased(daemon, "away", param1="x")["message"]["param1"] == "x"
    there = daemon.root.commands / "away"
    assert (there / "run").read_text() == command.RUN
    assert json.loads((there / "command.json").read_text())["command"] == [*words]


def test_a_command_may_run_here_and_elsewhere(daemon):
    new(daemon, "both", "--pull", "--workers", "2", "--", daemon.tell, "{param1}")
    config = daemon.ask_queue("both", "config")[1]
    assert (config["num_workers"], config["pull"]["share_script"]) == (2, True)
    assert ran(daemon, "both", param1="x")[1]["argv"] == ["x"]


def test_a_queue_for_workers_elsewhere_needs_no_command(daemon):
    said = new(daemon, "crawl", "--pull")
    assert "each with a script of its own" in said.stdout
    assert "/q/crawl --script DIR --token-file token" in said.stdout
    assert leased(daemon, "crawl", param1="x")["message"]["param1"] == "x"
    assert os.listdir(daemon.root.commands / "crawl") == ["config.json"]
    assert daemon.ask_queue("crawl", "config")[1]["num_workers"] == 0


def test_words_behind_the_dashes_are_the_commands_alone(daemon):
    new(daemon, "words", "--", daemon.tell, "--help", "--root", "/x", "--", "-h")
    assert ran(daemon, "words")[1]["argv"] == ["--help", "--root", "/x", "--", "-h"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["../x", "--", "true"], "invalid characters"),
        (["-x", "--", "true"], "required: NAME"),
        (["x"], "there is no command"),
        (["x", "--"], "there is no command"),
        (["x", "--", ""], "there is no command"),
        (["x", "--", "{param1}"], "which program is run"),
        (["x", "--", "sh", "-c", "echo {param1}"], "sh would run"),
        (["x", "--", "echo", "{param5}"], "is none of"),
        (["x", "--", "no-such-program"], "no program 'no-such-program' on the PATH"),
        (["x", "--", "./no-such"], "no-such cannot be started: there is no such file"),
        (["x", "--", "/bin/echo hi"], "give each word of the command by itself"),
        (["x", "true"], "put -- before the command: rq queue new x --"),
        (["x", "--job", "--", "true"], "unrecognized arguments: --job"),
        (["x", "--workers", "0", "--", "true"], "1 or more"),
        (["x", "--workers", "5000", "--", "true"], "not between 0 and 1024"),
        (["x", "--pull", "--"], "there is no command"),
        (["x", "--pull", "true"], "put -- before the command: rq queue new x --"),
        (["x", "--pull", "--workers", "2"], "are about a command, and there is none"),
        (["x", "--pull", "--append"], "are about a command, and there is none"),
        (["x", "--pull", "--", "./tell"], "a path from here, and the workers are"),
        (["x", "--pull", "--", "sh", "-c", "{param1}"], "sh would run"),
        (["x", "--pull", "--workers", "2", "--", "no-such"], "no program 'no-such'"),
    ],
)
def test_what_cannot_be_meant_makes_nothing(daemon, words, why):
    assert why in refused(daemon, *words)
    assert not os.path.lexists(daemon.root.commands / "x")
    assert not os.path.lexists(daemon.root.scandir / "x")


def test_nothing_that_is_there_is_replaced(daemon):
    new(daemon, "once", "--", "true")
    assert "queue once exists already" in refused(daemon, "once", "--", "id", code=4)
    told = refused(daemon, "relay", "--", "id", code=4)
    assert "comes with RQ" in told
    (daemon.root.scandir / "taken").symlink_to("/nowhere")
    assert "exists already" in refused(daemon, "taken", "--", "id", code=4)
    kept = json.loads((daemon.root.commands / "once" / "command.json").read_text())
    assert kept == {"command": ["true"], "append": False}


def test_a_relative_program_is_found_from_anywhere_and_a_file_is_pointed_out(daemon):
    here = daemon.root.path
    (here / "list.txt").write_text("x")
    done = new(daemon, "near", "--", "./tell", "list.txt", cwd=here)
    assert "'list.txt' is a file here" in done.stderr
    assert ran(daemon, "near")[1]["argv"] == ["list.txt"]


def test_without_an_rq_that_runs_it_is_made_for_later(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        done = new(daemon, "later", "--", "true")
        assert "the queue starts with `rq up`" in done.stderr
        daemon.start()
        daemon.until_up("later")
        assert ran(daemon, "later")[0]["state"] == "done"


def test_help_says_how(daemon):
    done = subprocess.run(
        [sys.executable, "-m", "rq.cli", "queue", "new", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "{param1} to {param4} become the message's parameters" in done.stdout


def test_limits_are_settings_of_the_new_queue(daemon):
    words = ["--limit", "timeout=10m", "--limit", "memory=512 MiB"]
    new(daemon, "limited", *words, "--", daemon.tell)
    config = json.loads((daemon.root.path / "commands/limited/config.json").read_text())
    assert (config["timeout"], config["memory"]) == ("10m", "512 MiB")
    assert "limit" in refused(daemon, "other", "--limit", "speed=9", "--", daemon.tell)
    assert "timeout" in refused(daemon, "x", "--limit", "timeout=0", "--", daemon.tell)
