"""Pictures, progress and words of pages, without a web."""

import doctest
import re
from pathlib import Path

import pytest

from rq import web
from rq.web import livelog, progress
from rq.web.pages import (
    chosen_queues,
    deliveries,
    message,
    overview,
    relay,
    sparklines,
    templating,
)


@pytest.mark.parametrize(
    "module", [livelog, overview, deliveries, progress, relay, templating]
)
def test_the_examples_are_right(module):
    tried = doctest.testmod(module)
    assert tried.attempted
    assert not tried.failed


def test_a_picture_has_a_bar_for_each_minute_in_which_something_ended():
    series = {"done": [0, 3, 0], "err": [0, 1, 2], "depth": [0, 0, 0], "accepted": [6]}
    picture = sparklines.spark(series)
    assert picture.bars.count("M") == 1
    assert picture.bars_bad.count("M") == 2
    assert picture.depth == ""
    assert "3 done, 3 failed" in picture.label


@pytest.mark.parametrize("values", [[], [0], [5], [1, 10**12, 3]])
def test_a_picture_of_anything_stays_inside_its_frame(values):
    series = {"done": values, "err": values, "depth": values, "accepted": values}
    picture = sparklines.chart(series)
    for name in ("bars", "bars_bad", "depth", "depth_fill"):
        drawn = getattr(picture, name)
        assert "nan" not in drawn.replace("M", " ").replace("L", " ").split()
        assert "e" not in drawn


def test_what_a_stream_has_leased_and_not_committed_is_behind_as_well():
    series = {"done": [0, 0], "err": [0, 0], "accepted": [9, 0], "depth": [9, 4]}
    picture = sparklines.behind({**series, "leased": [0, 5]})
    assert picture.deepest == 9
    assert picture.depth == sparklines.chart({**series, "depth": [9, 9]}).depth
    assert picture.label == "last hour: 9 waiting or leased now, 9 at most"
    # An owner of an older RQ does not tell what is leased.
    assert sparklines.behind(series).label.startswith("last hour: 4 waiting")


def test_a_queue_that_does_not_answer_has_no_picture():
    assert sparklines.spark(sparklines.EMPTY).bars == ""


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("100 %", 1.0),
        ("99.5%", 0.995),
        ("101 %", None),
        ("file 3/12", 0.25),
        ("9 of 3", None),
        ("1/2/3", None),
        ("done", None),
        ("9" * 400 + " %", None),
    ],
)
def test_progress_is_read_from_what_a_script_says(text, part):
    assert progress.part_done(text) == part


def row(name, admin="UP", age=None, **counts):
    return {"name": name, "admin": admin, "counts": counts, "oldest_due_age": age}


def named(rows):
    return "".join(row["name"] for row in rows)


def test_ties_keep_their_places_and_an_unknown_order_is_the_worst_first():
    rows = [row("a", que=1), row("b", que=1), row("c", que=9, err=1), row("d", err=7)]
    assert named(chosen_queues.ordered(rows, "waiting")) == "cabd"
    assert named(chosen_queues.ordered(rows, "<script>", {"b"})) == "bdca"
    assert named(chosen_queues.ordered(rows, "", ())) == "dcab"


@pytest.mark.parametrize(
    ("part", "show", "names"),
    [
        ("", "", "abAc"),
        ("a", "", "aA"),
        ("", "trouble", "b"),
        ("", "failed", "a"),
        ("", "overdue", "A"),
        ("", "waiting", "a"),
        ("", "running", "b"),
        ("", "closed", "c"),
        ("A", "failed", "a"),
        ("", "<script>", "abAc"),
    ],
)
def test_the_overview_lists_what_the_address_says(part, show, names):
    rows = [row("a", err=2, que=1), row("b", run=1), row("A", age=5.0),
            row("c", admin="PAUSE")]  # fmt: skip
    assert named(chosen_queues.chosen(rows, part, show, {"b"})) == names


@pytest.mark.parametrize(
    ("state", "kinds"),
    [
        ("prep", ["now", "ahead"]),
        ("que", ["past", "past", "now", "ahead"]),
        ("run", ["past", "now", "ahead"]),
        ("done", ["past", "past", "past"]),
        ("err", ["past", "past", "failed"]),
    ],
)
def test_the_life_of_a_message_has_its_stations(state, kinds):
    told = {
        "msg_id": "20260102.0304.05.006.7",
        "state": state,
        "due": 5.0,
        "attempt": 2,
        "result": {"finished": 1767323100.0, "run_us": 2_000_000},
    }
    assert [step.kind for step in message.life(told, 10.0)] == kinds


@pytest.mark.parametrize(
    ("state", "result", "verbs"),
    [
        ("run", {}, ("cancel",)),
        ("run", {"batch": "1.1", "messages": 5, "left": 1}, ("cancel",)),
        ("run", {"batch": "1.1", "messages": 5, "left": 2}, ("cancel_batch",)),
        ("que", {"batch": "1.1"}, ("run", "hold", "move", "delete")),
    ],
)
def test_one_of_many_in_a_batch_cannot_be_cancelled_alone(state, result, verbs):
    assert tuple(row.word for row in message.actions(state, result)) == verbs


def test_a_browser_that_knows_no_pair_of_colours_has_the_light_ones():
    css = (Path(web.__file__).parent / "static/rq.css").read_text()
    plain, newer = css.split("@supports (color: light-dark(#000, #fff)) {")
    newer, older = newer.split("\n}\n", 1)
    given = dict(re.findall(r"(--[\w-]+): ([^;]+);", plain))
    pairs = dict(re.findall(r"(--[\w-]+): ([^;]+);", newer))
    pair = r"light-dark\((#\w+|[^()]+\([^()]*\)), [^()]+(?:\([^()]*\))?\)"
    assert pairs
    for name, value in pairs.items():
        light = " ".join(re.sub(pair, r"\1", value).split())
        assert given[name] == light, name
    for word in ("light-dark(", "color-mix(", "oklch("):
        assert word not in plain + older, "a variable hides it from older browsers"
