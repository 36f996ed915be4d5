"""Pictures of the history: inside their frame, in scale, with labels at even distances."""

import doctest
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq import published
from rq.web.pages import plots, stripes

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
MICROS = st.one_of(st.none(), st.integers(0, 10**12))


def corners(path):
    """Return the points that a path of M, H and V goes through."""
    x = y = 0.0
    for letter, text in re.findall(r"([MHV])([^MHV]*)", path):
        found = [float(one) for one in NUMBER.findall(text)]
        if letter == "M":
            x, y = found
        elif letter == "H":
            [x] = found
        else:
            [y] = found
        yield x, y


def test_the_examples_in_the_modules_hold():
    for module in (plots, published):
        assert doctest.testmod(module).failed == 0


@given(st.lists(MICROS, min_size=1, max_size=40))
def test_lines_stay_in_the_frame_and_larger_lies_higher(values):
    drawn = plots.steps([values])
    known = [one for one in values if one is not None]
    assert bool(drawn.lines) == bool(known)
    for line in drawn.lines:
        points = list(corners(line))
        assert all(0 <= x <= plots.WIDTH + 0.1 for x, _ in points)
        assert all(-0.1 <= y <= plots.HEIGHT + 0.1 for _, y in points)
        # Each step ends with a line to the right, at the height of its value.
        ends = [point for point in points if point[0] > 0]
        heights = {round(x * len(values) / plots.WIDTH): [] for x, _ in ends}
        for x, y in ends:
            heights[round(x * len(values) / plots.WIDTH)].append(y)
        found = [heights[i + 1][0] for i, one in enumerate(values) if one is not None]
        for (low, lower), (high, higher) in itertools.combinations(
            zip(known, found, strict=True), 2
        ):
            assert (low - high) * (higher - lower) >= -0.1 * abs(low - high)


def test_a_value_lies_where_its_label_is():
    drawn = plots.steps([[1000, 100_000, 10_000_000]])
    assert drawn.labels == ["10 s", "1 s", "100 ms", "10 ms", "1 ms"]
    grid = [y for _, y in list(corners(drawn.grid))[::2]]
    assert grid == [0.0, 30.0, 60.0, 90.0, 120.0]
    assert [y for _, y in corners(drawn.lines[0])][::2] == [120.0, 60.0, 0.0]


def test_an_hour_in_which_nothing_ran_leaves_a_hole():
    [line] = plots.steps([[5, None, 5]]).lines
    assert line.count("M") == 2


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30))
def test_bars_end_at_or_below_the_top_label(pairs):
    good, bad = [one for one, _ in pairs], [one for _, one in pairs]
    drawn = plots.bars(good, bad)
    assert all(one + other <= drawn.top for one, other in pairs)
    assert drawn.top <= max(
        2, 2 * max((one + other for one, other in pairs), default=0)
    )
    for path in (drawn.good, drawn.bad):
        for upper, tall in re.findall(r"M[\d.]+ ([\d.]+)h[\d.]+v([\d.]+)", path):
            assert float(upper) + float(tall) <= plots.HEIGHT + 1.1
    assert drawn.good.count("M") == sum(one > 0 for one in good)


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=5), max_size=5))
def test_only_nothing_has_no_shade_and_the_most_has_the_darkest(rows):
    shaded = plots.shades(rows)
    most = max((one for row in rows for one in row), default=0)
    for row, cells in zip(rows, shaded, strict=True):
        for value, shade in zip(row, cells, strict=True):
            assert (shade == 0) == (value == 0)
            assert shade == plots.SHADES if value == most > 0 else shade <= plots.SHADES


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=200), st.integers(1, 99))
def test_a_percentile_of_a_histogram_is_at_most_a_bucket_away(values, percent):
    histogram = [0] * 40
    for one in values:
        histogram[one.bit_length() - 1] += 1
    about = published.percentile(histogram, percent)
    exact = sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
    assert exact / 2 - 1 <= about <= exact * 2


def run_of(started, ended, outcome="done"):
    ran = 5.0 if ended is None else ended - started
    return {
        "queue": "q",
        "started": started,
        "ended": ended,
        "ran": ran,
        "outcome": outcome,
    }


def places(picture):
    """Return (left, top, width) of each stripe."""
    found = (re.match(r"M([\d.]+) (\d+)h([\d.]+)", s.path) for s in picture.stripes)
    return [tuple(map(float, match.groups())) for match in found]


def test_a_night_has_a_stripe_a_run_in_lanes_as_runs_overlap():
    runs = [
        run_of(100, 200),
        run_of(150, 200, "err"),
        run_of(210, 300),
        run_of(299, None),
    ]
    picture = stripes.night(runs, 0.0, 400.0)
    lefts, tops, wides = zip(*places(picture), strict=True)
    assert [stripe.kind for stripe in picture.stripes] == ["good", "bad", "good", "run"]
    assert tops == (1, 9, 1, 9)
    assert picture.height == 16
    assert (lefts[0], wides[0] > 2 * wides[3]) == (
        0.0,
        True,
    )  # it begins with the first
    assert max(map(sum, zip(lefts, wides, strict=True))) <= stripes.WIDTH


def test_a_night_has_a_stripe_for_fires_that_were_missed():
    miss = {"timer": "t", "from": 120.0, "to": 180.0, "count": 2, "why": "down"}
    picture = stripes.night([run_of(100, 200)], 0.0, 400.0, [miss])
    assert [stripe.kind for stripe in picture.stripes] == ["good", "missed"]
    assert "timer t, 00:02:00 UTC, 2 fires missed: down" in picture.stripes[1].title
    assert places(picture)[1] == (200.0, 9.0, 600.0)
    alone = stripes.night([], 0.0, 400.0, [{**miss, "to": 120.0, "count": 1}])
    assert [stripe.kind for stripe in alone.stripes] == ["missed"]


@pytest.mark.parametrize("number", [1, 200])
def test_a_night_is_never_higher_than_some_lanes_and_shows_a_moment(number):
    picture = stripes.night([run_of(5, 5)] * number, 0.0, 10.0)
    assert picture.height <= 16 * 8
    assert all(
        left + wide <= stripes.WIDTH and wide >= 2 for left, _, wide in places(picture)
    )
    assert len(picture.stripes) == number
