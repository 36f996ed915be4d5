"""`rq doctor`: measures the disk, looks at the settings, says what can be promised."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from rq import config, zones
from rq.access import warnings as access
from rq.cli import OK, broker_health, owner, place, ports, term
from rq.config import recipients
from rq.errors import BadConfig, RQError
from rq.files import disk
from rq.layout import Root
from rq.proc import cgroups
from rq.replies import Checked, Detail, Problem, SupervisorStatus, health
from rq.scripts import obeyed
from rq.words import wording

if TYPE_CHECKING:
    from rq.spool.disk_speed import Speed

_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
_DESCRIPTORS = 4096
_EARLIEST = 1_735_689_600  # 2025: an earlier clock was never set
_SLOW_SYNC = 0.02  # seconds
_ROOM = 256 * 1024 * 1024  # what measuring may take of a fast disk, for a second


def doctor(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "doctor",
        "Measure the disk, look at the settings, and say what RQ can promise here.",
    )
    term.flag(parser, "--quick", "do not measure the disk")
    term.json_option(parser)
    args = parser.parse_args(words)
    system = disk.describe(root.path)
    speed, unknown = (None, []) if args.quick else _speed(root, system)
    warnings = [*system.warnings, *_settings(root), *_machine(), *_slow(speed)]
    warnings += unknown
    if args.json:
        _print_json(root, system, speed, warnings)
        return OK
    for name, value in [*_disk_lines(system), *_speed_lines(speed)]:
        print(f"{name:<14} {value}")
    print(f"{'promise':<14} {system.promise}")
    print(f"{'limits':<14} {_limits(root)}")
    print(f"{'time zones':<14} {zones.of_tables(zones.tables())}")
    for line in warnings:
        print(f"{term.colour('warning:', 'yellow')} {term.plain(line)}")
    if not warnings:
        print(term.colour("no warnings", "green"))
    return OK


def _speed(root: Root, system: disk.FileSystem) -> tuple[Speed | None, list[str]]:
    """Measure; or tell why not: a disk that is full is one to look at, not to fill."""
    from rq.spool import disk_speed

    if system.free_bytes < _ROOM:
        text = (
            f"the disk was not measured: that takes {wording.size(_ROOM)} of free space"
        )
        return None, [text]
    try:
        return disk_speed.measure(root.path), []
    except OSError as error:
        return None, [f"the disk could not be measured: {error.strerror}"]


def _disk_lines(system: disk.FileSystem) -> Iterator[tuple[str, str]]:
    has_journal = {True: "yes", False: "no", None: "unknown"}[system.has_journal]
    mode = f", data={system.data_mode}" if system.data_mode else ""
    yield "root", str(system.path)
    yield "file system", f"{system.kind} on {system.device}, mounted at {system.mount}"
    yield "its journal", has_journal + mode
    inodes = "as many" if system.free_inodes is None else f"{system.free_inodes:,}"
    yield "free", f"{wording.size(system.free_bytes)}, and {inodes} inodes"
    yield "room", f"about {system.room_messages:,} finished messages (logs not counted)"


def _speed_lines(speed: Speed | None) -> Iterator[tuple[str, str]]:
    if speed is None:
        return
    yield (
        "accept",
        f"{speed.sync_p50 * 1e6:.0f} µs median, {speed.sync_p99 * 1e6:.0f} µs p99 "
        "(a line and fdatasync, as the journal does it)",
    )
    yield (
        "growing file",
        f"{speed.append_p50 * 1e6:.0f} µs median (append and fdatasync)",
    )
    yield "folders", f"{speed.folders:.0f} made per second (mkdir and msg)"


def _slow(speed: Speed | None) -> Iterator[str]:
    if speed is not None and speed.sync_p50 > _SLOW_SYNC:
        yield (
            f"a sync of the disk takes {speed.sync_p50 * 1e3:.0f} ms, and everybody who "
            "sends a message waits that long"
        )


def _settings(root: Root) -> Iterator[str]:
    if not root.config.exists():
        yield f"RQ is not installed in {root.path}: run `rq up`"
        return
    try:
        settings = config.read_root(root)
    except BadConfig as error:
        yield str(error)
        return
    if settings.env == "production" and settings.host in _LOCAL_HOSTS:
        yield (
            f"`env` is production and `host` is {settings.host}: message ids that begin "
            f"so lead nowhere from other hosts; set `host` in {root.config}"
        )
    yield from access.of_root(root, settings, time.time())
    yield from obeyed.warnings(root, place.queue_names(root))
    yield from recipients.warnings(root, settings)
    running = place.is_running(root)
    yield from broker_health.warnings(root, running)
    if running:
        supervisor = place.supervisor_status(root)
        yield from (trouble.sentence for trouble in health.of_held(supervisor))
        yield from _no_hints(supervisor)
        yield from _queues(root)
    else:
        yield from _miscounted(root)
        holder = ports.holder(settings.addr, settings.port)
        if holder is not None:
            yield f"port {settings.port}, which the web needs, is taken by {holder}"


def _no_hints(supervisor: SupervisorStatus) -> Iterator[str]:
    if why := (supervisor.get("scandir") or {}).get("no_hints"):
        yield f"new links, timers and flags are found by looking every second: {why}"


def _queues(root: Root) -> Iterator[str]:
    """Give what queues cannot read; `rq status` tells of those that do not answer."""
    for name in place.queue_names(root):
        with contextlib.suppress(RQError):
            detail = cast(Detail, owner.demand(root, name, "detail"))
            for trouble in health.of_files(name, detail):
                yield f"queue {trouble.sentence}"
            if place.is_parked(root, name):
                continue  # it looks at its counters at its next start
            wanted = {"only": "counters"}
            checked = cast(Checked, owner.demand(root, name, "check", wanted))
            yield from _wrong_counts(name, checked["problems"])


def _miscounted(root: Root) -> Iterator[str]:
    """Give what stopped queues count wrong."""
    from rq.spool import check

    for name in place.queue_names(root):
        with contextlib.suppress(RQError, OSError):
            problems = check.miscounted(root.queue(name))
            yield from _wrong_counts(name, [problem.to_json() for problem in problems])


def _wrong_counts(queue: str, problems: Iterable[Problem]) -> Iterator[str]:
    for problem in problems:
        yield f"queue {queue}, {problem['subject']}: {problem['text']}"


def _limits(root: Root) -> str:
    """Say what keeps the limits `memory` and `processes` of scripts."""
    running = place.is_running(root)
    pid = place.supervisor_status(root).get("pid") if running else None
    group = cgroups.delegated("self" if pid is None else pid)
    if group is not None:
        return (
            f"memory and processes of a script together, by control groups in {group}"
        )
    counted = "not of root" if os.geteuid() == 0 else "of all processes of RQ's user"
    return (
        "memory of each process (RLIMIT_AS), processes by RLIMIT_NPROC, "
        f"{counted}: no control group is delegated to RQ (bin/rq.service does that)"
    )


def _machine() -> Iterator[str]:
    if time.time() < _EARLIEST:
        yield f"the clock says {term.moment(time.time())}: messages will be due at wrong times; set the clock"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < _DESCRIPTORS:
        yield (
            f"a process may open {hard} files, too few for many connections: raise the "
            f"hard limit (`ulimit -Hn`) to {_DESCRIPTORS}"
        )


def _print_json(
    root: Root, system: disk.FileSystem, speed: Speed | None, warnings: list[str]
) -> None:
    facts = dataclasses.asdict(system)
    facts["room_messages"] = system.room_messages
    term.print_json(
        {
            "root": str(root.path),
            "file_system": facts,
            "speed": None if speed is None else dataclasses.asdict(speed),
            "promise": system.promise,
            "time_zones": zones.of_tables(zones.tables()),
            "warnings": warnings,
        }
    )
