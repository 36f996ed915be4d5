"""`rq timer`: what a person asks of timers."""

import json

import pytest
from harness.cli import rq

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
    head, *fires = done.stdout.splitlines()
    assert head == f"{path} is a timer: 30 2 * * * in Asia/Kathmandu, to backup"
    assert len(fires) == 5
    assert all(" 02:30:00 +0545 = " in line for line in fires)
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
    assert done.stderr == f"there is no queue backup in {root} yet\n"


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
