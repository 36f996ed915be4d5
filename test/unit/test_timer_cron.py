"""When rules of cron fire: zones, changes of clocks, leap days; the tables are what
Debian's cron does."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import BadInput
from rq.timers.cron import cron, local
from rq.zones import zone as zone_of

NEW_YORK, LONDON = "America/New_York", "Europe/London"
LORD_HOWE, KATHMANDU = "Australia/Lord_Howe", "Asia/Kathmandu"
CASABLANCA, SAO_PAULO = "Africa/Casablanca", "America/Sao_Paulo"


def epoch(text, zone):
    return datetime.fromisoformat(text).replace(tzinfo=zone_of(zone)).timestamp()


def later(day, zone, days):
    """Return the midnight that so many days end at."""
    end = datetime.fromisoformat(day) + timedelta(days)
    return end.replace(tzinfo=zone_of(zone)).timestamp()


def shown(at, zone):
    return local(at, zone)[11:].partition(" (")[0].replace(":00 ", " ")


def fires(expression, zone, day, days=1):
    """Return when a rule fires from the midnight of a day on, as its zone's clock shows."""
    rule, at = cron(expression, zone), epoch(day, zone) - 1
    end = later(day, zone, days)
    found = []
    while (at := rule.after(at)) < end:
        found.append(shown(at, zone))
    return found


@pytest.mark.parametrize(
    ("zone", "day", "expression", "told"),
    [
        # Clocks go ahead: what names its hour fires behind the gap, once.
        (NEW_YORK, "2026-03-08", "30 1 * * *", ["01:30 EST"]),
        (NEW_YORK, "2026-03-08", "30 2 * * *", ["03:00 EDT"]),
        (NEW_YORK, "2026-03-08", "0,30 2 * * *", ["03:00 EDT"]),
        (NEW_YORK, "2026-03-08", "0 3 * * *", ["03:00 EDT"]),
        (NEW_YORK, "2026-03-08", "0 2,3 * * *", ["03:00 EDT"]),
        (LONDON, "2026-03-29", "30 1 * * *", ["02:00 BST"]),
        (LORD_HOWE, "2026-10-04", "15 2 * * *", ["02:30 +11"]),
        (CASABLANCA, "2026-03-22", "30 2 * * *", ["03:00 +01"]),
        (SAO_PAULO, "2018-11-04", "30 0 * * *", ["01:00 -02"]),
        # They are put back: it fires at the first of two equal times.
        (NEW_YORK, "2026-11-01", "30 1 * * *", ["01:30 EDT"]),
        (NEW_YORK, "2026-11-01", "30 2 * * *", ["02:30 EST"]),
        (LONDON, "2026-10-25", "30 1 * * *", ["01:30 BST"]),
        (LORD_HOWE, "2026-04-05", "45 1 * * *", ["01:45 +11"]),
        (CASABLANCA, "2026-02-15", "30 2 * * *", ["02:30 +01"]),
        # What repeats goes on in real time.
        (NEW_YORK, "2026-03-08", "0 */2 * * *", []),
        (NEW_YORK, "2026-11-01", "30 * * * *", []),
        # No change of clocks at all.
        (KATHMANDU, "2026-03-08", "30 2 * * *", ["02:30 +0545"]),
        ("UTC", "2026-03-08", "30 2 * * *", ["02:30 UTC"]),
        # A zone whose rules changed: none since 2019.
        (SAO_PAULO, "2019-11-03", "30 0 * * *", ["00:30 -03"]),
    ],
)
def test_a_day_of_changing_clocks(zone, day, expression, told):
    if told:
        assert fires(expression, zone, day) == told
    else:
        assert fires(expression, zone, day, 2) == plain(expression, zone, day, 2)


def plain(expression, zone, day, days):
    """Return the same by asking each minute what the clock of the zone shows."""
    rule, tz = CronSim(expression, datetime(2020, 1, 1, tzinfo=UTC)), zone_of(zone)
    start = int(epoch(day, zone))
    found = []
    for at in range(start, int(later(day, zone, days)), 60):
        clock = datetime.fromtimestamp(at, tz)
        if (
            clock.minute in rule.minutes
            and clock.hour in rule.hours
            and rule.match_day(clock.date())
        ):
            found.append(shown(at, zone))
    return found


CHANGES = [
    (NEW_YORK, "2026-03-07"),
    (NEW_YORK, "2026-10-31"),
    (LONDON, "2026-03-28"),
    (LONDON, "2026-10-24"),
    (LORD_HOWE, "2026-04-04"),
    (LORD_HOWE, "2026-10-03"),
    (KATHMANDU, "2026-03-07"),
    (CASABLANCA, "2026-02-14"),
    (CASABLANCA, "2026-03-21"),
    (SAO_PAULO, "2018-11-03"),
    ("Pacific/Apia", "2011-12-29"),  # left out a whole day
]
REPEATED = [
    "0 * * * *",
    "30 * * * *",
    "* 2 * * *",
    "* 3 * * *",
    "*/15 1 * * *",
    "15 */2 * * *",
    "*/10 0,23 * * *",
]


@pytest.mark.parametrize("expression", REPEATED)
@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_what_repeats_fires_whenever_the_clock_shows_a_time_of_it(
    zone, day, expression
):
    assert fires(expression, zone, day, 3) == plain(expression, zone, day, 3)


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@pytest.mark.parametrize("expression", [*REPEATED, "30 1 * * *", "30 2 * * *"])
def test_from_wherever_one_looks_the_fires_are_the_same(zone, day, expression):
    rule, start = cron(expression, zone), epoch(day, zone)
    all_fires = list(
        itertools.takewhile(lambda at: at < start + 3 * 86400, after(rule, start))
    )
    for look in range(int(start), int(all_fires[-1]), 1740):
        assert rule.after(look + 0.5) == next(at for at in all_fires if at > look + 0.5)


def after(rule, moment):
    while True:
        moment = rule.after(moment)
        yield moment


@pytest.mark.parametrize(
    ("expression", "start", "told"),
    [
        ("0 0 29 2 *", "2026-01-01", ["2028-02-29", "2032-02-29"]),
        ("0 0 29 2 *", "2096-03-01", ["2104-02-29", "2108-02-29"]),
        ("0 0 L * *", "2028-02-01", ["2028-02-29", "2028-03-31"]),
        ("0 0 31 * *", "2026-01-31", ["2026-03-31", "2026-05-31"]),
        ("0 0 * * MON#5", "2026-01-01", ["2026-03-30", "2026-06-29"]),
        ("0 0 * * 5L", "2026-01-01", ["2026-01-30", "2026-02-27"]),
        ("0 0 13 * FRI", "2026-02-10", ["2026-02-13", "2026-02-20"]),
        ("@monthly", "2026-01-01", ["2026-02-01", "2026-03-01"]),
        ("@YEARLY", "2026-01-01", ["2027-01-01", "2028-01-01"]),
        (" @weekly ", "2026-01-01", ["2026-01-04", "2026-01-11"]),
    ],
)
def test_days_of_the_calendar(expression, start, told):
    rule = cron(expression, "UTC")
    found = itertools.islice(after(rule, epoch(start, "UTC")), 2)
    assert [local(at, "UTC")[:10] for at in found] == told


@given(
    st.sampled_from([*REPEATED, "30 1 * * *", "15 2 * * 0", "0 0 1 * *"]),
    st.sampled_from([NEW_YORK, LORD_HOWE, "UTC"]),
    st.integers(1_760_000_000, 1_800_000_000),
    st.integers(0, 40 * 86400),
    st.integers(1, 120),
)
def test_the_newest_fires_of_a_time_are_those_of_all(expression, zone, at, span, most):
    rule, now = cron(expression, zone), float(at + span)
    every = itertools.takewhile(lambda moment: moment <= now, after(rule, float(at)))
    assert rule.until(float(at), now, most) == list(every)[-most:]


@pytest.mark.parametrize(
    ("expression", "zone", "told"),
    [
        ("", "UTC", "has not the five fields"),
        ("* * * *", "UTC", "has not the five fields"),
        ("0 * * * * *", "UTC", "has not the five fields"),
        ("@reboot", "UTC", "has not the five fields of cron.* @hourly"),
        ("60 * * * *", "UTC", "Bad minute"),
        ("* 24 * * *", "UTC", "Bad hour"),
        ("* * 0 * *", "UTC", "Bad day-of-month"),
        ("* * * JANUARY *", "UTC", "Bad month"),
        ("* * * * MOO", "UTC", "Bad day-of-week"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        ("*/0 * * * *", "UTC", "Bad minute"),
        ("0 " * 300, "UTC", "has not the five fields"),
        ("* * * * *", "Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("* * * * *", "../../etc/passwd", "there is no time zone"),
        ("* * * * *", "America", "there is no time zone"),
        ("* * * * *", "\0", "there is no time zone"),
        ("* * * * *", "x" * 5000, "there is no time zone"),
    ],
)
def test_what_is_no_rule_is_refused_in_a_sentence(expression, zone, told):
    with pytest.raises(BadInput, match=told):
        cron(expression, zone)


@given(st.text(alphabet="0159*/,-#LW@ JANFRIdaily²", max_size=30))
def test_no_text_makes_another_failure(text):
    try:
        rule = cron(text, "UTC")
    except BadInput:
        return
    assert rule.after(1e9) > 1e9
