"""Time zones: whose tables are read, and which zone this machine is in.

There are two sets of tables: the system's, which `date` and scripts go by, and those of
the package tzdata, which is pinned with RQ. Python would read the system's whenever they
are there. They may be years old, and then a timer fires an hour off where clocks have
new rules. So the newer set is read first, for all zones, and the other for names that it
lacks. Tables that do not say their version count as old.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import io
import re
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from rq.errors import BadInput

_NAME = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_VERSIONS = (
    ("tzdata.zi", re.compile(r"# version (\d{4}[a-z]*)")),
    ("+VERSION", re.compile(r"(\d{4}[a-z]*)")),
)
_HEAD = 100  # bytes of a file that names its version
_ETC = Path("/etc")
_IN_ZONES = "/zoneinfo/"
_THAT_FILE = "/etc/localtime"  # as TZ it says nothing of its own
_KINDS = ("posix/", "right/")  # folders that hold all zones once more
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})
_HOPS = 8  # links that lead to a table at the most
# Where a zone is written by its name: by Debian, by Red Hat, by SUSE.
_WRITTEN = (
    ("timezone", re.compile(r"[ \t]*([\w+/-]+)[ \t]*", re.ASCII)),
    ("sysconfig/clock", re.compile(r"""(?:ZONE|TIMEZONE)=["']?([\w+/-]+).*""")),
)
_AHEAD = 2 * 366 * 86_400  # seconds for which two zones are compared
_STEP = 6 * 3600


@dataclass(frozen=True, slots=True)
class Tables:
    """A folder of zones, and the release that it says it is; "": none."""

    place: Path
    version: str
    is_own: bool  # of the package tzdata

    @property
    def age(self) -> tuple[int, int, str]:
        """What sorts releases: 2025z is before 2025za, and that before 2026a."""
        letters = self.version[4:]
        return int(self.version[:4] or 0), len(letters), letters

    def has(self, name: str, data: bytes) -> bool:
        """Whether a zone's table is this one."""
        path = self.place / name
        try:
            return path.stat().st_size == len(data) and path.read_bytes() == data
        except OSError:
            return False


def by_age(system: Iterable[Path], own: Path) -> tuple[Tables, ...]:
    """Return the tables that are there, the newest first; of equal ones the system's."""
    given = [
        Tables(place, _version(place), False) for place in system if place.is_dir()
    ]
    given.append(Tables(own, _version(own), True))
    return tuple(sorted(given, key=lambda each: each.age, reverse=True))


def _version(place: Path) -> str:
    for name, pattern in _VERSIONS:
        try:
            with open(place / name, "rb") as file:
                head = file.read(_HEAD).decode("ascii", "replace")
        except OSError:
            continue
        if match := pattern.match(head):
            return match[1]
    return ""


@functools.cache
def tables() -> tuple[Tables, ...]:
    """Return what zones are read from here, first to last; as it was at the start."""
    return by_age(map(Path, zoneinfo.TZPATH), _own())


def forget() -> None:
    """Read tables again, as a process does that has just begun."""
    tables.cache_clear()
    zone.cache_clear()


def _own() -> Path:
    package = importlib.util.find_spec("tzdata")
    places = (package and package.submodule_search_locations) or ["/nonexistent"]
    return Path(places[0]) / "zoneinfo"


def of_tables(given: Iterable[Tables]) -> str:
    """Say which tables are read first, and what the others are."""
    first, *others = (
        f"{each.version or 'of no release'} "
        + ("that comes with RQ" if each.is_own else f"in {each.place}")
        for each in given
    )
    older = f"; older or equal: {', '.join(others)}" if others else ""
    return f"tzdata {first}{older}"


@functools.lru_cache(maxsize=1024)
def zone(name: str) -> tzinfo:
    """Return a zone of the IANA database; BadInput names a near one."""
    if name == "UTC":
        return UTC
    for each in tables() if _NAME.fullmatch(name) else ():
        try:
            with open(each.place / name, "rb") as file:
                return zoneinfo.ZoneInfo.from_file(file, key=name)
        except (OSError, ValueError):
            continue
    near = difflib.get_close_matches(name, zoneinfo.available_timezones(), 1)
    hint = f"did you mean {near[0]!r}?" if near else "say one as 'Europe/Berlin'"
    raise BadInput(f"there is no time zone {name!r:.80}; {hint}")


# ---- the zone of the machine


def of_machine(now: float, environ: Mapping[str, str], etc: Path = _ETC) -> str:
    """Return the zone that the clock of this machine shows; BadInput when it states none
    that has a name, or two.

    /etc/localtime is what every program goes by, cron too, so it counts before a name
    that stands in a file. A container may have TZ instead. But TZ may also be what one
    user's shell says, so it must not contradict.
    """
    stated = _localtime(etc, now) or _written(etc)
    variable = environ.get("TZ", "").removeprefix(":").rpartition(_IN_ZONES)[2]
    if variable in ("", _THAT_FILE):
        if not stated:
            raise BadInput("this machine does not say which time zone it is in")
        return stated
    named = zone(variable)
    if stated and not _alike(named, zone(stated), now):
        raise BadInput(f"the variable TZ says {variable}, and {etc} says {stated}")
    return stated or variable


def _localtime(etc: Path, now: float) -> str:
    """Return the zone whose table /etc/localtime is, "" when it says none."""
    path = etc / "localtime"
    if not (path.exists() or path.is_symlink()):
        return ""
    try:
        data = path.read_bytes() if not path.is_fifo() else b""
    except OSError as error:
        raise BadInput(
            f"{path} leads to no table of a time zone: {error.strerror}"
        ) from None
    for name in _linked(path):
        if _is_zone(name):
            return name
    return _by_content(path, data, _written(etc), now)


def _linked(path: Path) -> Iterator[str]:
    """Give the names of zones that links lead over: the first is what was meant."""
    for _ in range(_HOPS):
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()
        name = str(path).rpartition(_IN_ZONES)[2]
        if name != str(path):
            yield functools.reduce(str.removeprefix, _KINDS, name)


def _is_zone(name: str) -> bool:
    try:
        zone(name)
    except BadInput:
        return False
    return name not in _NO_ZONES


def _by_content(path: Path, data: bytes, written: str, now: float) -> str:
    """Return the zone that a file is a copy of; what is written beside it counts if the
    file shows the same time."""
    same = _copied(data)
    if written and (written in same or _shows(data, written, now)):
        return written
    if not same:
        raise BadInput(f"{path} is no copy of a time zone that has a name here")
    return same[0]


def _copied(data: bytes) -> list[str]:
    """Return the zones that have just this table; first what countries are in."""
    same = [
        name
        for name in zoneinfo.available_timezones() - _NO_ZONES
        if any(each.has(name, data) for each in tables())
    ]
    countries = _of_countries()
    return sorted(same, key=lambda name: (name != "UTC", name not in countries, name))


def _of_countries() -> frozenset[str]:
    own = next(each for each in tables() if each.is_own)
    lines = (own.place / "zone1970.tab").read_text().split("\n")
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return frozenset(row[2] for row in rows if len(row) > 2)


def _shows(data: bytes, name: str, now: float) -> bool:
    try:
        copy = zoneinfo.ZoneInfo.from_file(io.BytesIO(data))
    except ValueError:
        return False
    return _alike(copy, zone(name), now)


def _alike(one_zone: tzinfo, other: tzinfo, now: float) -> bool:
    """Whether two zones show the same time from now on."""
    begin = int(now)
    moments = range(begin, begin + _AHEAD, _STEP)
    return all(
        datetime.fromtimestamp(at, one_zone).utcoffset()
        == datetime.fromtimestamp(at, other).utcoffset()
        for at in moments
    )


def _written(etc: Path) -> str:
    """Return the zone that a file names, "" when none does."""
    for name, pattern in _WRITTEN:
        try:
            text = (etc / name).read_text("utf-8", "replace")
        except OSError:
            continue
        for line in text.split("\n"):
            if (match := pattern.fullmatch(line)) and _is_zone(match[1]):
                return match[1]
    return ""
