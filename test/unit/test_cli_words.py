"""What the command line makes of words, before it asks anybody."""

from datetime import UTC, timedelta, timezone

import pytest

from rq import cli
from rq.cli import ancestor, take_root
from rq.cli.check_rq import Level, Limits, judge, parse_limits
from rq.cli.verbs import ANCESTOR, VERBS
from rq.errors import BadInput
from rq.words import moments

KNOWN = ("dest", "param1", "param2", "force_remote", "msg_id")
LIMITS = Limits(25, 40, 3000, 3500)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--dest=a"], {"dest": "a"}),
        (["--dest", "a"], {"dest": "a"}),
        (["--dest", "a--b"], {"dest": "a--b"}),
        (["--param1=--x"], {"param1": "--x"}),
        (["--param1="], {"param1": ""}),
        (["--param1", "-x"], {"param1": "-x"}),
        (["--force_remote", "--dest", "a"], {"force_remote": True, "dest": "a"}),
        (["--dest", "a", "--force_remote"], {"dest": "a", "force_remote": True}),
        (["--relay-ok", "--dest=a"], {"relay-ok": True, "dest": "a"}),
        (["stray", "--dest", "a"], {"dest": "a"}),
    ],
)
def test_the_ancestors_options_mean_what_they_meant(words, meant):
    assert ancestor.options(words, KNOWN) == meant


def test_an_unknown_option_is_refused_and_not_ignored():
    with pytest.raises(BadInput, match="--parm1"):
        ancestor.options(["--parm1=x"], KNOWN)


@pytest.mark.parametrize("dest", ["http://h/q/a", "https://h:1/q/a"])
def test_a_destination_on_some_host_needs_leave_to_be_relayed(dest):
    with pytest.raises(BadInput, match="--relay-ok"):
        ancestor.target(dest, {})
    assert ancestor.target(dest, {"relay-ok": True}) == "relay"
    assert ancestor.target("httpd", {}) == "httpd"


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("+10m", 1600.0),
        ("10m", 1600.0),
        ("now", 1000.0),
        ("+90", 1090.0),
        ("1h30m", 6400.0),
        ("1700000000", 1700000000.0),
        ("@1700000000.5", 1700000000.5),
        ("2026-01-02T03:04:05+00:00", 1767323045.0),
        ("2026-01-02T03:04:05Z", 1767323045.0),
    ],
)
def test_a_due_time_can_be_said_in_the_usual_ways(text, due):
    assert moments.due(text, 1000.0) == due


def test_a_time_without_a_zone_is_one_of_the_zone_that_is_meant():
    assert moments.due("2026-01-02 03:04:05", 0.0, UTC) == 1767323045.0
    ahead = timezone(timedelta(hours=5))
    assert moments.due("2026-01-02 03:04:05", 0.0, ahead) == 1767323045.0 - 5 * 3600
    assert moments.due("2026-01-02T03:04:05Z", 0.0, ahead) == 1767323045.0


@pytest.mark.parametrize(
    "text", ["", "soon", "10x", "-5m", "2026-13-01", "+", "9" * 400 + "d"]
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(BadInput):
        moments.due(text, 1000.0)


def test_the_root_may_stand_before_or_after_the_verb():
    assert take_root(["--root", "/a", "ls"]) == ("/a", ["ls"])
    assert take_root(["ls", "--root=/a", "q"]) == ("/a", ["ls", "q"])
    assert take_root(["send", "q", "--", "--root", "x"])[0] is None
    with pytest.raises(BadInput):
        take_root(["ls", "--root"])


def test_no_verb_is_both_ours_and_the_ancestors():
    assert not VERBS.keys() & ANCESTOR.keys()


def test_check_rq_reports_the_worst_finding_and_not_the_last():
    values = {"status": "UP", "prep": "0", "que": "50", "run": "0", "done": "3100"}
    levels = [one.level for one in judge("a", values, LIMITS)]
    assert levels == [Level.CRITICAL, Level.WARNING]


def test_check_rq_survives_a_queue_with_two_kinds_of_trouble():
    values = {"status": "DOWN", "que": "99", "err": "2"}
    assert [one.level for one in judge("a", values, LIMITS)] == [Level.CRITICAL] * 3


def test_check_rq_wants_four_limits():
    assert parse_limits("25:40:3000:3500") == LIMITS
    with pytest.raises(BadInput):
        parse_limits("25:40")


def test_who_may_not_is_told_whom_to_ask(capsys):
    def refused():
        raise PermissionError(13, "Permission denied", "/srv/rq/queue")

    assert cli.guarded(refused) == 1
    said = capsys.readouterr().err
    assert said.startswith("rq: /srv/rq/queue: permission denied: run this as the user")


def test_what_is_no_end_of_a_pause_is_told_all_that_may_be_said():
    for text in ("6pm", "25:00"):
        with pytest.raises(BadInput, match=r"say 18:00, \+10m, epoch seconds or 2026-"):
            moments.until(text, 1000.0)
