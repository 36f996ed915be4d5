"""/history: what was published is shown, and that nothing was; Spark is not needed."""

import json
import shutil
import time

import pytest
from harness import history_reference as reference
from harness.journal_files import DAY, JournalFiles, life, lines
from harness.web_server import web_alone

from rq.config import files
from rq.layout import Root

pytestmark = pytest.mark.process

HOUR = 3600 * 10**6
NOW = int(time.time()) // 3600 * HOUR + HOUR // 2  # in the middle of this hour


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """Give the web of a root whose queues have worked for days."""
    root = Root(tmp_path_factory.mktemp("root"))
    for number, name in enumerate(("alpha", "beta")):
        files.make_queue(root.queue(name), {"script": "/bin/true"}, {})
        journal = JournalFiles(root, name, f"{number:08x}")
        journal.seal(days_of_work(name))
    reference.publish(root, NOW / 1e6)
    with web_alone(root.path) as web:
        web.root = root
        yield web


def days_of_work(name):
    for index in range(40):
        end, cause = ("fail", "exit") if index % 8 == 7 else ("finish", "done")
        at = NOW - HOUR // 4 - index * DAY // 4
        msg = f"20260101.0101.01.001.{name}{index}"
        yield from life(msg, at, end=end, cause=cause, run_us=1000 << index % 10)


def expected(web, queue, since):
    """Return what plain Python counts of a queue (None: all) from then on."""
    events = [
        one
        for one in lines(web.root)
        if one["ts"] >= since and queue in (None, one["queue"])
    ]
    return reference.figures(events)


@pytest.mark.parametrize("queue", [None, "alpha"])
@pytest.mark.parametrize(
    ("chosen", "since", "number"),
    [
        ("day", NOW // HOUR * HOUR - 23 * HOUR, 24),
        ("week", NOW // DAY * DAY - 6 * DAY, 168),
        ("month", NOW // DAY * DAY - 29 * DAY, 30),
    ],
)
def test_a_range_shows_what_plain_python_counts(web, queue, chosen, since, number):
    place = f"/q/{queue}/history" if queue else "/history"
    told = web.get(f"{place}.json?range={chosen}").json
    wanted = expected(web, queue, since)
    for name in reference.NAMES.values():
        assert told["totals"][name] == wanted[name], name
        assert sum(one[name] for one in told["steps"]) == wanted[name], name
    assert len(told["steps"]) == number
    assert {one["cause"]: one["number"] for one in told["causes"]} == wanted["causes"]
    half, most, _ = told["totals"]["run_about"]
    assert 0.4 < half / wanted["run"][0] < 2.5
    assert 0.4 < most / wanted["run"][1] < 2.5
    assert web.get(f"{place}?range={chosen}").status == 200


def test_percentiles_of_a_day_that_goes_on_are_called_about(web):
    index = web.root.spark / "history" / "json" / "index.json"
    place = index.with_name(f"{json.loads(index.read_text())['days'][-1]}.json")
    old = place.read_text()
    files.write_text(place, json.dumps({**json.loads(old), "exact": False}))
    try:
        bars = web.get("/history.json?range=month").json["steps"]
        assert [bar["about"] for bar in bars] == [False] * 29 + [True]
        assert "today: about" in web.get("/history?range=month").text
        bars = web.get("/history.json?range=week").json["steps"]
        assert not any(bar["about"] for bar in bars)
        assert "today: about" not in web.get("/history?range=week").text
    finally:
        files.write_text(place, old)
    assert "today: about" not in web.get("/history?range=month").text


def test_the_hours_of_the_heat_map_are_those_of_the_events(web):
    told = web.get("/history.json").json
    assert len(told["heat"]) == 7
    shown = {
        (row["date"], h): n for row in told["heat"] for h, n in enumerate(row["hours"])
    }
    for date, parts in reference.gold(lines(web.root)).items():
        for (queue, hour), one in parts.items():
            if queue is None and hour is not None and (date, hour) in shown:
                assert shown[date, hour] == one["done"] + one["err"]


def test_the_page_counts_what_is_where_and_says_as_of_when(web):
    told = web.get("/history.json").json
    shown = {one["queue"]: one["counts"] for one in told["states"]}
    assert shown == reference.states(lines(web.root))
    text = web.get("/history").text
    assert f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(NOW / 1e6))} UTC" in text
    longest = max((one.get("run_us", 0), one.get("msg")) for one in lines(web.root))
    assert told["slowest"][0]["run_us"] == longest[0]
    assert "style=" not in text


def test_a_new_publication_is_shown_at_once(web):
    place = web.root.spark / "history" / "json" / "index.json"
    old = place.read_text()
    files.write_text(place, old.replace('"events": 240', '"events": 241'))
    try:
        assert web.get("/history.json").json["events"] == 241
    finally:
        files.write_text(place, old)


def test_a_queue_that_was_removed_is_told_of_and_leads_nowhere(web):
    place = web.root.spark / "history" / "json" / "index.json"
    old = place.read_text()
    index = json.loads(old)
    del index["counts"]["beta"]
    files.write_text(place, json.dumps(index))
    try:
        text = web.get("/history").text
        assert "beta <span" in text
        assert '"/q/alpha/history' in text
        assert "/q/beta/" not in text
        assert [one["queue"] for one in web.get("/history.json").json["states"]] == [
            "alpha"
        ]
    finally:
        files.write_text(place, old)


def test_a_queue_that_is_not_there_has_no_history(web):
    assert web.get("/q/gamma/history").status == 404


def test_without_a_publication_the_page_says_how_to_come_by_one(web):
    place = web.root.spark
    place.rename(place.with_name("elsewhere"))
    try:
        for path in ("/history", "/q/alpha/history"):
            text = web.get(path).text
            assert "Nothing is published yet" in text
            assert "./bin/rq spark history" in text
        assert web.get("/history.json").json["as_of"] is None
        place.joinpath("history/json").mkdir(parents=True)
        (place / "history/json/index.json").write_text('{"half')
        assert web.get("/history.json").json["as_of"] is None
    finally:
        shutil.rmtree(place, ignore_errors=True)
        place.with_name("elsewhere").rename(place)
