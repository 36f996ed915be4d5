"""Whose tables time zones are read from, and which zone a machine says it is in."""

import importlib.resources
import os
import shutil
import zoneinfo
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rq import zones
from rq.errors import BadInput
from rq.timers.cron import cron, local

PINNED = Path(str(importlib.resources.files("tzdata") / "zoneinfo"))
BERLIN = (PINNED / "Europe/Berlin").read_bytes()
NOW = datetime(2026, 11, 27, tzinfo=UTC).timestamp()


def tables(path, version, **named):
    """Return a folder of zones that says a release."""
    path.mkdir()
    if version:
        (path / "tzdata.zi").write_text(f"# version {version}\nR d 1916 o\n")
    for name, of in named.items():
        shutil.copy(PINNED / of, path / name)
    return path


@pytest.mark.parametrize(
    ("system", "own", "first"),
    [
        ("2025b", "2026f", "own"),
        ("2027a", "2026f", "system"),
        ("2026f", "2026f", "system"),
        ("2025za", "2025z", "system"),
        ("2025za", "2026a", "own"),
        ("", "2026f", "own"),
        ("nonsense", "2026f", "own"),
    ],
)
def test_the_newer_tables_are_read_first(tmp_path, system, own, first):
    tables(tmp_path / "system", system)
    tables(tmp_path / "own", own)
    by_age = zones.by_age([tmp_path / "none", tmp_path / "system"], tmp_path / "own")
    assert by_age[0].place.name == first
    assert len(by_age) == 2


def test_a_release_may_stand_in_a_file_of_its_own(tmp_path):
    (tables(tmp_path / "system", "") / "+VERSION").write_text("2027a\n")
    own = tables(tmp_path / "own", "2026f")
    [first, _] = both = zones.by_age([tmp_path / "system"], own)
    assert first.version == "2027a"
    said = (
        f"tzdata 2027a in {tmp_path}/system; older or equal: 2026f that comes with RQ"
    )
    assert zones.of_tables(both) == said


def test_every_zone_is_what_the_newest_tables_say():
    first = zones.tables()[0]
    pinned = (PINNED.parent / "zones").read_text().split()
    moments = [NOW + day * 86_400 for day in range(-330, 400, 5)]
    wrong = []
    for name in pinned:
        with open(first.place / name, "rb") as file:
            zone = zoneinfo.ZoneInfo.from_file(file)
        ours = [
            datetime.fromtimestamp(at, zones.zone(name)).utcoffset() for at in moments
        ]
        if ours != [datetime.fromtimestamp(at, zone).utcoffset() for at in moments]:
            wrong.append(name)
    assert (len(pinned) > 500, wrong) == (True, [])
    assert first.version >= "2026f"


def test_a_timer_in_british_columbia_keeps_its_hour():
    at = cron("0 9 * * *", "America/Vancouver").after(NOW)
    assert local(at, "America/Vancouver").endswith(" 09:00:00 MST (UTC-07:00)")
    assert local(at, "UTC").endswith(" 16:00:00 UTC")


@pytest.mark.parametrize(
    "name",
    [
        "../zoneinfo/UTC",
        "/etc/localtime",
        "America",
        "tzdata.zi",
        "",
        "Europe/Berlin\n",
    ],
)
def test_what_names_no_zone_is_refused(name):
    with pytest.raises(BadInput, match="there is no time zone"):
        zones.zone(name)


# ---- the machine


def link(etc, target):
    (etc / "localtime").symlink_to(target)


def linked(etc):
    link(etc, "/usr/share/zoneinfo/Europe/Berlin")
    (etc / "timezone").write_text("America/Lima\n")


def a_copy(etc):
    (etc / "localtime").write_bytes(BERLIN)


def a_copy_and_a_name(etc):
    (etc / "localtime").write_bytes((PINNED / "Europe/Oslo").read_bytes())
    (etc / "timezone").write_text("# set by hand\nEurope/Vienna\n")


def a_copy_and_an_old_name(etc):
    a_copy(etc)
    (etc / "timezone").write_text("America/Lima\n")


def of_red_hat(etc):
    a_copy(etc)
    (etc / "sysconfig").mkdir()
    (etc / "sysconfig/clock").write_text('UTC=true\nZONE="Europe/Vienna"\n')


def link_to_a_copy(etc):
    (etc / "mine").write_bytes(BERLIN)
    link(etc, "mine")


def link_over_a_link(etc):
    (etc / "zoneinfo").mkdir()
    (etc / "zoneinfo/Asia").mkdir()
    (etc / "zoneinfo/Asia/Calcutta").symlink_to(PINNED / "Asia/Kolkata")
    link(etc, "zoneinfo/Asia/Calcutta")


def a_name_alone(etc):
    (etc / "timezone").write_text("Europe/Berlin")


def nothing(etc):
    pass


@pytest.mark.parametrize(
    ("machine", "environ", "zone"),
    [
        (linked, {}, "Europe/Berlin"),
        (linked, {"TZ": "Europe/Paris"}, "Europe/Berlin"),
        (linked, {"TZ": ":/etc/localtime"}, "Europe/Berlin"),
        (a_copy, {}, "Europe/Berlin"),
        (a_copy_and_a_name, {}, "Europe/Vienna"),
        (a_copy_and_an_old_name, {}, "Europe/Berlin"),
        (of_red_hat, {}, "Europe/Vienna"),
        (link_to_a_copy, {}, "Europe/Berlin"),
        (link_over_a_link, {}, "Asia/Calcutta"),
        (a_name_alone, {}, "Europe/Berlin"),
        (nothing, {"TZ": "Europe/Berlin"}, "Europe/Berlin"),
        (nothing, {"TZ": ":/usr/share/zoneinfo/Asia/Tokyo"}, "Asia/Tokyo"),
    ],
)
def test_the_zone_is_found_however_a_machine_states_it(
    tmp_path, machine, environ, zone
):
    machine(tmp_path)
    assert zones.of_machine(NOW, environ, tmp_path) == zone


def contradicted(etc):
    link(etc, PINNED / "Etc/UTC")


def dangling(etc):
    link(etc, "/usr/share/zoneinfo/Mars/Base")


def made_by_hand(etc):
    (etc / "localtime").write_bytes(BERLIN.replace(b"CET-1CEST", b"CET-2CEST"))
    (etc / "timezone").write_text("Europe/Berlin\n")


def no_table(etc):
    (etc / "localtime").write_text("Europe/Berlin\n")


def round_in_links(etc):
    link(etc, "localtime")


def a_fifo(etc):
    os.mkfifo(etc / "localtime")


def not_set(etc):
    link(etc, PINNED / "Factory")


@pytest.mark.parametrize(
    ("machine", "environ", "said"),
    [
        (nothing, {}, "does not say which time zone"),
        (nothing, {"TZ": "CET-1CEST"}, "no time zone 'CET-1CEST'"),
        (contradicted, {"TZ": "Europe/Berlin"}, "TZ says Europe/Berlin, and"),
        (dangling, {}, "leads to no table"),
        (made_by_hand, {}, "is no copy of a time zone"),
        (no_table, {}, "is no copy of a time zone"),
        (round_in_links, {}, "leads to no table"),
        (a_fifo, {}, "is no copy of a time zone"),
        (not_set, {}, "is no copy of a time zone"),
    ],
)
def test_a_zone_is_never_guessed(tmp_path, machine, environ, said):
    machine(tmp_path)
    with pytest.raises(BadInput) as caught:
        zones.of_machine(NOW, environ, tmp_path)
    assert said in str(caught.value)
