"""/q/NAME/days: a grid of how the days of a queue's tables stand; Spark is not needed."""

import os

import pytest
from harness.web_server import web_alone

from rq import days
from rq.config import files
from rq.days import Batch, Days, Part, Standing
from rq.layout import Root

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return Root(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def web(root):
    """Give the web of a root with a queue whose days stand in several ways."""
    script = root.path / "job"
    script.write_text("#!/bin/sh\n")
    for name in ("logs", "quiet"):
        files.make_queue(root.queue(name), {"script": str(script)}, {})
    noted, now = Days(root, "logs"), days.digest(script)
    for day, text in (("2026-11-01", now), ("2026-11-02", "old"), ("2026-11-04", now)):
        batch(noted, day, text, f"m{day}")
    root.queue("logs").message(days.KEPT[0], "m2026-11-02").mkdir(parents=True)
    batch(noted, "2026-12-01", "old", "gone")
    noted.say("2026-11-04", Standing.FAILED, "ValueError: <b>no</b>")
    root.queue("logs").message(days.KEPT[0], "m2026-11-04").mkdir(parents=True)
    with web_alone(root.path) as made:
        yield made


def batch(noted, day, script, msg_id):
    part = Part(day=day, place="/data/hits", manifest=f"b{day}", rows=1200)
    noted.note(
        Batch(
            name=f"b{day}", decided=1.0, script=script, groups=[[msg_id]], parts=[part]
        )
    )


def test_the_grid_shows_how_each_day_stands(web):
    told = web.get("/q/logs/days.json").json
    states = {view["day"]: view["state"] for view in told["days"]}
    assert {day: state for day, state in states.items() if state != "missing"} == {
        "2026-11-01": "done",
        "2026-11-02": "stale",
        "2026-11-04": "failed",
        "2026-12-01": "unavailable",
    }
    assert told["counts"]["missing"] == 27
    text = web.page("/q/logs/days")
    for said in (
        "2026-11-01: done; 1,200 rows",
        "2026-11-03: missing, no batch has put a row into it",
        "2026-11-04: failed, ValueError: <b>no</b>; 1,200 rows",
        "1 of its 1 message is gone",
        "rq spark backfill logs --day 2026-11-02..2026-11-04",
    ):
        assert said in text
    assert "<b>no</b>" not in web.get("/q/logs/days", Accept="text/html").text
    assert text.index("2026-12") < text.index("2026-11")


def test_a_queue_without_days_says_how_it_gets_some(web):
    assert "No day has rows yet" in web.page("/q/quiet/days")
    assert web.get("/q/quiet/days.json").json["days"] == []
    assert web.get("/q/none/days").status == 404
    assert "/q/quiet/days" not in web.get("/q/quiet", Accept="text/html").text
    assert "/q/logs/days" in web.get("/q/logs", Accept="text/html").text


def test_what_is_being_made_can_be_cancelled(web, root):
    noted = Days(root, "logs")
    noted.want(["2026-11-01"])
    assert "Cancel what" not in web.get("/q/logs/days", Accept="text/html").text
    held = noted.lock("2026-11-02")
    noted.say("2026-11-02", Standing.RUNNING, "batch 1 of 2")
    try:
        assert "Cancel what" in web.get("/q/logs/days", Accept="text/html").text
        before = noted.cancels()
        answer = web.post("/q/logs/days", {"_method": "cancel", "x_format": "json"})
        assert answer.json == ["ok", "cancelled: 2026-11-02"]
    finally:
        os.close(held)
    assert noted.cancels() == before + 1
    assert noted.wanted() == set()
    text = web.post("/q/logs/days", {"_method": "cancel", "x_format": "json"}).text
    assert "no day was being made again" in text
    assert web.post("/q/none/days", {"_method": "cancel"}).status == 404
