"""Crontabs as they stand: lines, variables, percent signs; pure."""

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
    assert backup.env == {
        "SHELL": "/bin/bash",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }


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
        ("* * * * sat-sun x", "Bad day-of-week"),
        ("0~59 * * * * x", "Bad minute"),
        ("-*/15 * * * * x", "Bad minute"),
        ("# caf\udce9\n* * * * * echo caf\udce9", "the byte 0xe9 in it is no text"),
        ("* * * * * echo \0", "the byte 0x00 in it is no text"),
        ("\v* * * * * x", "has not the five fields"),
        ("* * * *\u00a0* x", "it has no command"),
        ("*\f* * * * x", "it has no command"),
        ("RQ_ROOT=/x", "RQ_ROOT cannot be set"),
        ("a-b=x", "'a-b' cannot be the name of a variable"),
        ("=x", "'' cannot be the name of a variable"),
        ("MAILTO=-oX@b", "MAILTO, on_err: mail: '-oX@b' is no address"),
        ("A=caf\udce9", "the byte 0xe9 in it is no text"),
        ("RANDOM_DELAY=some\n* * * * * x", "RANDOM_DELAY is 'some'"),
        ("RANDOM_DELAY=1441\n* * * * * x", "1440 at most"),
    ],
)
def test_a_line_that_can_be_no_timer_is_told_with_its_number(line, told):
    table = crontab.parse(line, "UTC")
    assert table.entries == []
    [(number, why)] = table.refused
    assert number == line.count("\n") + 1
    assert told in why


def test_a_users_column_is_no_part_of_the_command():
    [entry] = crontab.parse(
        "17 * * * * root run-parts /x", "UTC", with_users=True
    ).entries
    assert (entry.user, entry.command) == ("root", "run-parts /x")


# What Debian's cron 3.0pl1 made of the same lines.
@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ('A=a "b" c', "A", 'a "b" c'),
        ("A='q \"r\" s'", "A", 'q "r" s'),
        ("A = spaced   ", "A", "spaced"),
        ('"A"=quoted name', "A", "quoted name"),
        ("'A'='x'", "A", "x"),
        ('A=""', "A", ""),
        ("A='a' ", "A", "a"),
        ("A=it's", "A", "it's"),
        ('A= "a b"', "A", "a b"),
        ("A=a\v", "A", "a"),
        ("A=a\r", "A", "a"),
        ('A="a"\v', "A", "a"),
        ("A\v=\f1", "A", "1"),
        ("A=1 # c", "A", "1 # c"),
        (" \t A=lead", "A", "lead"),
        ('A="a=b"', "A", "a=b"),
    ],
)
def test_a_variable_has_the_value_that_cron_gave_it(line, name, value):
    [entry] = crontab.parse(f"{line}\n* * * * * x", "UTC").entries
    assert entry.env == {name: value}


@pytest.mark.parametrize(
    "line",
    [
        'A="a b" c',
        'B="x"y"',
        'G="open',
        'K="a\\"b"',
        "V=  ",
        "MAILTO=",
        'X="',
        "Y='a\"",
    ],
)
def test_a_variable_that_cron_does_not_take_stops_the_lines_below_it(line):
    table = crontab.parse(f"* * * * * y\n{line}\n* * * * * x\n* * * * * z", "UTC")
    assert [entry.number for entry in table.entries] == [1]
    (first, why), *below = table.refused
    assert (first, why[:29]) == (2, "cron takes no such variable: ")
    assert below == [(n, "it may need the variable of line 2") for n in (3, 4)]


@pytest.mark.parametrize(
    ("command", "text", "stdin"),
    [
        ("cat%", "cat", ""),
        ("cat%a", "cat", "a\n"),
        ("cat%a%", "cat", "a\n"),
        ("cat%a%%b", "cat", "a\n\nb\n"),
        ("cat%%", "cat", "\n"),
        ("cat%  x ", "cat", "  x \n"),
        (r"cat%\%", "cat", "%\n"),
        (r"cat%a\\%b", "cat", "a\\%b\n"),
        ("cat%a\\%b\\\\c\\d\\", "cat", "a%b\\\\c\\d\\\n"),
        (r"printf '[\%s]' 'a\\b' 'c\d'", r"printf '[%s]' 'a\b' 'c\d'", None),
        (r"echo '\\\%'", r"echo '\%'", None),
        (r"echo 'a\\%b'", "echo 'a\\", "b'\n"),
        (r"echo 'a\%b\%c'", "echo 'a%b%c'", None),
        ("echo x\\ ", "echo x\\ ", None),
        ("echo a\vb\u0085\u2028c\r", "echo a\vb\u0085\u2028c\r", None),
    ],
)
def test_the_shell_is_given_what_cron_gave_it(command, text, stdin):
    [entry] = crontab.parse(f"# first\n* * * * *\t{command}\n\n", "UTC").entries
    assert (entry.number, entry.text, entry.stdin) == (2, text, stdin)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("A=b /opt/x/run.sh", "run-sh"),
        ("cd /srv; ./a b", "a"),
        ("[ -x /bin/x ] && /bin/x", "x"),
        ("/päth/ü!", "cron"),
        ("-x", "x"),
        ("y" * 90, "y" * 40),
        ("flock -n /tmp/l /srv/backup", "backup"),
        ("flock -n /tmp/l -c '/srv/backup --all'", "backup"),
        ("timeout -k 5 60 nice -n 10 /usr/bin/report", "report"),
        ("nice -19 ionice -c3 tar czf x", "tar"),
        ("env -u X A=b run-parts /etc", "run-parts"),
        ("sh -c 'cd /srv && ./sync; true'", "sync"),
        ("bash -lc 'nice env X=1 /opt/etl'", "etl"),
        ("test -x /a || ( cd / && run-parts /etc/daily )", "run-parts"),
        ("flock -w 5 /l sudo -u www php x.php", "php"),
        ("env", "env"),
        ("flock -n", "flock"),
        ("true; 'no end", "true"),
    ],
)
def test_a_queue_is_called_as_the_program_that_does_something(command, name):
    [entry] = crontab.parse(f"* * * * * {command}", "UTC").entries
    assert entry.name == name


@pytest.mark.parametrize("value", ['" x  "', "' x\t'", '" x"', '" x\v\r" '])
def test_blanks_at_the_end_of_a_value_go_even_within_quotes(value):
    [entry] = crontab.parse(f"A={value}\n* * * * * y\n", "UTC").entries
    assert entry.env == {"A": " x"}
