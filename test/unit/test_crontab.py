"""Crontabs as they stand: lines, variables, percent signs; pure."""

import subprocess

import pytest

from rq.timers import crontab

WHOLE = """\
# m h dom mon dow command
SHELL=/bin/bash
PATH = "/usr/local/bin:/usr/bin:/bin"
MAILTO=ops@example.org
30 3 * * *   /usr/local/bin/backup --to /mnt/backup   # all of it
CRON_TZ=Asia/Kathmandu
@daily  cd /srv/app && LANG=C ./report
*/5 9-17 * * mon-fri check
"""


def test_each_line_is_a_timer_with_the_variables_above_it():
    table = crontab.parse(WHOLE, "Europe/Berlin")
    backup, report, check = table.entries
    assert (backup.number, backup.expression) == (5, "30 3 * * *")
    assert backup.command == "/usr/local/bin/backup --to /mnt/backup   # all of it"
    assert [one.zone for one in table.entries] == [
        "Europe/Berlin",
        "Asia/Kathmandu",
        "Asia/Kathmandu",
    ]
    assert [one.name for one in table.entries] == ["backup", "report", "check"]
    assert report.expression == "@daily"
    assert check.expression == "*/5 9-17 * * mon-fri"
    assert {one.shell for one in table.entries} == {"/bin/bash"}
    assert backup.env == {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("setting", "mail"),
    [
        ("", None),
        ('MAILTO=""\n', ()),
        ("MAILTO=ops@example.org\n", ("ops@example.org",)),
        ("MAILTO = 'root, a@b c@d'\n", ("root", "a@b", "c@d")),
    ],
)
def test_mail_goes_to_whom_the_lines_above_say(setting, mail):
    [entry] = crontab.parse(f"{setting}* * * * * x\nMAILTO=later@b\n", "UTC").entries
    assert entry.mail == mail
    assert "MAILTO" not in entry.env


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("@reboot /bin/x", "has not the five fields of cron"),
        ("61 * * * * /bin/x", "Bad minute"),
        ("* * * * *", "it has no command"),
        ("@daily", "it has no command"),
        ("nonsense", "it has no command"),
        ("0 0 30 2 * /bin/x", "Bad day-of-month"),
        ("CRON_TZ=Mars/Base\n* * * * * x", "there is no time zone 'Mars/Base'"),
        ("RANDOM_DELAY=some\n* * * * * x", "RANDOM_DELAY is 'some'"),
        ("RANDOM_DELAY=1441\n* * * * * x", "1440 at most"),
    ],
)
def test_a_line_that_can_be_no_timer_is_told_with_its_number(line, told):
    table = crontab.parse(line, "UTC")
    assert table.entries == []
    [(number, why)] = table.refused
    assert number == len(line.splitlines())
    assert told in why


def test_a_users_column_is_no_part_of_the_command():
    [entry] = crontab.parse(
        "17 * * * * root run-parts /x", "UTC", with_users=True
    ).entries
    assert (entry.user, entry.command) == ("root", "run-parts /x")


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("echo $HOME", "/\n"),
        ("pwd", "/\n"),
        (r"echo 100\%", "100%\n"),
        ("cat%one%two", "one\ntwo\n"),
        (r"cat%it's 5\% off", "it's 5% off\n"),
        ("echo a # b", "a\n"),
        ("cat # reads%x", "x\n"),
        ("false || echo no", "no\n"),
        ("echo a | tr a b; echo c", "b\nc\n"),
    ],
)
def test_the_shell_does_what_it_did_under_cron(command, written):
    [entry] = crontab.parse(f"* * * * * {command}", "UTC").entries
    ran = subprocess.run(
        [entry.shell, "-c", entry.script],
        env={"HOME": "/", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == written


@pytest.mark.parametrize("command", ["exit 3", "cat >/dev/null; exit 3%x"])
def test_its_exit_status_is_that_of_the_command(command):
    [entry] = crontab.parse(f"* * * * * {command}", "UTC").entries
    words = [entry.shell, "-c", entry.script]
    assert subprocess.run(words, env={"HOME": "/"}, check=False).returncode == 3


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("A=b /opt/x/run.sh", "run-sh"),
        ("cd /srv; ./a b", "a"),
        ("[ -x /bin/x ] && /bin/x", "x"),
        ("/päth/ü!", "cron"),
        ("-x", "x"),
        ("y" * 90, "y" * 40),
    ],
)
def test_a_queue_is_called_as_the_program_that_does_something(command, name):
    [entry] = crontab.parse(f"* * * * * {command}", "UTC").entries
    assert entry.name == name
