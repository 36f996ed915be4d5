"""`rq timer`: what a person asks of timers."""

import json
import os
import subprocess
import sys

import pytest
from harness.cli import rq
from harness.post import SCRIPT, Post
from harness.waiting import wait_until

from rq.builtin.command import Command
from rq.timers import crontab

pytestmark = pytest.mark.process


@pytest.fixture
def root(tmp_path):
    (tmp_path / "timers").mkdir()
    (tmp_path / "queue" / "backup").mkdir(parents=True)
    return tmp_path


def written(root, name="nightly", **settings):
    path = root / f"{name}.json"
    path.write_text(json.dumps({**settings, "msg": {"dest": "backup"}}))
    return path


def test_validate_tells_when_a_timer_would_fire_there_and_in_utc(root):
    path = written(root, cron="30 2 * * *", timezone="Asia/Kathmandu")
    done = rq("timer", "validate", path, root=root)
    head, *fires, tables = done.stdout.splitlines()
    assert tables.startswith("time zones are those of tzdata 20")
    assert head == f"{path} is a timer: 30 2 * * * in Asia/Kathmandu, to backup"
    assert len(fires) == 5
    assert all(" 02:30:00 +0545 (UTC+05:45) = " in line for line in fires)
    assert all(line.endswith(" 20:45:00 UTC") for line in fires)
    assert (done.returncode, done.stderr) == (0, "")


def test_validate_tells_that_a_period_begins_at_once_and_which_queue_is_not_there(root):
    path = written(root, period=5400)
    (root / "queue" / "backup").rmdir()
    done = rq("timer", "validate", path, root=root)
    assert done.stdout.splitlines() == [
        f"{path} is a timer: every 1 h 30 min, to backup",
        "it fires as soon as it is in timers/, and then each period after that",
    ]
    assert "there is no queue 'backup'; until it is there" in done.stderr


def test_validate_tells_of_each_queue_of_a_flow_that_is_not_there(root):
    path = root / "nightly.json"
    (root / "queue" / "flow").mkdir()
    (root / "queue" / "backup" / "config.json").write_text("{}")
    messages = [
        {"name": name, "dest": dest}
        for name, dest in (("a", "backup"), ("b", "backups"), ("c", "backups"))
    ]
    path.write_text(json.dumps({"period": 5400, "flow": messages}))
    done = rq("timer", "validate", path, root=root)
    assert done.stderr == (
        f"{path}: b: there is no queue 'backups'; did you mean 'backup'?; until it is there, "
        "this timer sends nothing\n"
    )


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("a", {"cron": "61 * * * *"}, "'61 * * * *' is no time of cron: Bad minute"),
        ("a", {"cron": "@reboot"}, "has not the five fields of cron"),
        ("a", {"cron": "* * * * *", "timezone": "Europe/Berln"}, "'Europe/Berlin'"),
        ("a.b", {"period": 60}, "is not called NAME.json"),
        ("a", {}, "'period' is missing"),
    ],
)
def test_validate_refuses_in_a_sentence(root, name, settings, told):
    done = rq("timer", "validate", written(root, name, **settings), root=root)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_list_shows_rules_while_rq_does_not_run(root):
    written(root / "timers", cron="30 2 * * *")
    done = rq("timer", "ls", root=root)
    assert "nightly  30 2 * * * UTC  backup" in done.stdout


TABLE = """\
MAILTO=ops@example.org
GREETING=hello
0 0 1 1 *  test "$GREETING" = hello && cd "$HOME" && /bin/echo 100\\%
0 0 1 1 *  /bin/echo other
@reboot /bin/echo boot
"""


@pytest.fixture
def imported(daemon):
    daemon.root.scandir.mkdir(exist_ok=True)
    path = daemon.root.path / "crontab"
    path.write_text(TABLE)
    return daemon, path


def taken_over(daemon, path, *more):
    words = ["timer", "import", path, "--timezone", "Asia/Kathmandu", *more]
    done = rq(*words, root=daemon.root.path)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.slow
def test_each_line_of_a_crontab_becomes_a_queue_and_a_timer_that_work(imported):
    daemon, path = imported
    daemon.start()
    done = taken_over(daemon, path)
    said = "are made, 0 0 1 1 * in Asia/Kathmandu"
    assert done.stdout.splitlines() == [
        f"line 3: queue and timer echo {said}",
        f"line 4: queue and timer echo-2 {said}",
    ]
    [last] = done.stderr.splitlines()
    assert last.startswith("line 5 is left out: '@reboot' has not the five fields")
    assert done.returncode == 1
    made = {"echo", "echo-2"}
    wait_until(lambda: made <= {child["name"] for child in daemon.children()}, 60)
    daemon.until_up("echo")
    wait_until(
        lambda: rq("timer", "run", "echo", root=daemon.root.path).returncode == 0
    )
    wait_until(lambda: daemon.ask_queue("echo", "num_messages")["done"] == 1, 60)
    listed = json.loads(rq("timer", "ls", "--json", root=daemon.root.path).stdout)
    by_hand = {row["name"]: (row["last"], bool(row["fired"])) for row in listed}
    assert by_hand == {"echo": (None, True), "echo-2": (None, False)}
    table = rq("timer", "ls", root=daemon.root.path).stdout.splitlines()
    last = [line[table[0].index("LAST") :][:4] for line in table[1:]]
    assert (last[0].isdigit(), last[1].isdigit()) == (True, False)


MAILED = """\
* * * * *  /bin/echo quiet
MAILTO=""
* * * * *  /bin/ls /
MAILTO=ops@example.org, root
* * * * *  /usr/bin/env printf 'out\\%\\%s'; echo 'and err' >&2; exit 3
"""


@pytest.mark.slow
def test_whom_cron_mailed_what_a_line_printed_rq_mails_it(daemon):
    box = Post(daemon.root.path)
    daemon.root.scandir.mkdir(exist_ok=True)
    daemon.link("notice", SCRIPT.parent)
    path = daemon.root.path / "crontab"
    path.write_text(MAILED)
    daemon.start()
    assert taken_over(daemon, path).returncode == 0
    for name in ("notice", "echo", "ls", "printf"):
        daemon.until_up(name)
    for name in ("echo", "ls", "printf"):
        (daemon.root.timers / f"{name}.json").unlink()
        rq("send", name, "--wait", root=daemon.root.path)
    wait_until(box.raw, 60)
    wait_until(lambda: daemon.ask_queue("notice", "num_messages")["done"] == 1)
    [letter] = box.letters()
    assert letter["To"] == "ops@example.org, root"
    assert letter.get_content().endswith("The end of its log:\n\nout%sand err\n")


def test_a_mailto_that_is_no_address_leaves_its_lines_out(daemon):
    daemon.root.scandir.mkdir(exist_ok=True)
    path = daemon.root.path / "crontab"
    path.write_text("MAILTO=-oX@b\n* * * * * /bin/echo\n")
    done = taken_over(daemon, path)
    assert "line 1 is left out: MAILTO, on_err: mail: '-oX@b' is no" in done.stderr
    assert "line 2 is left out: it may need the variable of line 1" in done.stderr
    assert done.returncode == 1


def test_what_was_imported_is_not_imported_again_and_a_cut_import_is_completed(
    imported,
):
    daemon, path = imported
    first = taken_over(daemon, path).stdout
    (daemon.root.timers / "echo-2.json").unlink()
    again = taken_over(daemon, path).stdout.splitlines()
    assert again[0] == "line 3: queue and timer echo are there already"
    assert again[1] == first.splitlines()[1]
    assert sorted(one.name for one in daemon.root.commands.iterdir()) == [
        "echo",
        "echo-2",
    ]


def test_what_was_imported_under_another_name_does_not_run_twice(imported):
    daemon, path = imported
    taken_over(daemon, path)
    for place in (daemon.root.commands, daemon.root.timers):
        for old in sorted(place.iterdir()):
            old.rename(old.with_name(old.name.replace("echo", "flock")))
    for timer in daemon.root.timers.iterdir():
        timer.write_text(timer.read_text().replace("echo", "flock"))
    again = taken_over(daemon, path).stdout
    assert "line 3: queue and timer flock are there already" in again
    assert "echo" not in again


def test_a_dry_run_makes_nothing(imported):
    daemon, path = imported
    done = taken_over(daemon, path, "--dry-run")
    assert "line 4: queue and timer echo-2 would be made" in done.stdout
    assert list(daemon.root.timers.iterdir()) == []
    assert not daemon.root.commands.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/nonexistent"], "/nonexistent cannot be read: No such file"),
        (["/dev/zero"], "larger than a crontab"),
        (["/dev/null", "--timezone", "Mars"], "there is no time zone 'Mars'"),
    ],
)
def test_what_is_no_crontab_is_refused_in_a_sentence(daemon, words, told):
    done = rq("timer", "import", *words, root=daemon.root.path)
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


LATIN = b"* * * * * /bin/echo caf\xe9\n# caf\xe9\n* * * * * /bin/ls\n"


def test_a_line_that_is_no_utf_8_is_named_and_the_others_are_taken(daemon):
    daemon.root.scandir.mkdir(exist_ok=True)
    path = daemon.root.path / "crontab"
    path.write_bytes(LATIN)
    done = taken_over(daemon, path)
    assert done.stdout.startswith("line 3: queue and timer ls are made")
    assert done.stderr == (
        "line 1 is left out: the byte 0xe9 in it is no text in UTF-8: convert the file\n"
    )


def test_a_name_on_the_command_line_that_is_no_utf_8_is_refused(daemon):
    daemon.start()
    daemon.until_up("timers")
    for verb in ("run", "next"):
        done = rq("timer", verb, os.fsdecode(b"caf\xe9"), root=daemon.root.path)
        assert "cannot be sent as JSON" in done.stderr
        assert done.returncode == 2


RECORDER = """\
#!/bin/sh
{ printf '<%s>\\n' "$#" "$@"; pwd -P; cat; } > "$OUT"
exit 3
"""


def ran(tmp_path, entry, home):
    """Run the command of a line as its queue would; return its status and what the
    shell was given."""
    path, out = tmp_path / "command.json", tmp_path / "out"
    runs = Command((entry.shell, "-c", entry.text), at_home=True, stdin=entry.stdin)
    path.write_text(json.dumps(runs.to_json()))
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            'exec "$0" -I -m rq.builtin.command "$1" 3>&2',
            sys.executable,
            path,
        ],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "OUT": str(out)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done, out.read_text() if out.exists() else ""


def test_any_shell_gets_the_command_of_a_line_and_nothing_else(tmp_path):
    shell = tmp_path / "shell"
    shell.write_text(RECORDER)
    shell.chmod(0o755)
    text = f"SHELL={shell}\n* * * * * if ( $x ) echo \v 'a\\%'%in%put\n"
    [entry] = crontab.parse(text, "UTC").entries
    done, given = ran(tmp_path, entry, tmp_path)
    told = (
        f"<2>\n<-c>\n<if ( $x ) echo \v 'a%'>\n{os.path.realpath(tmp_path)}\nin\nput\n"
    )
    assert (done.returncode, given) == (3, told)


def test_a_command_does_not_run_elsewhere_when_its_home_is_not_there(tmp_path):
    [entry] = crontab.parse("* * * * * touch $OUT", "UTC").entries
    done, _ = ran(tmp_path, entry, tmp_path / "none")
    assert done.returncode == 1
    assert not (tmp_path / "out").exists()
    assert done.stderr.startswith(b"err /bin/sh was not started: ")
    assert done.stderr.endswith(b"/none: No such file or directory\n")
