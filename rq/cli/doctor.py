"""`rq doctor`: measures the disk, looks at the settings, says what can be promised."""

from __future__ import annotations

import dataclasses
import resource
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rq import config, disk, wording
from rq.access import warnings as access
from rq.cli import OK, place, ports, term
from rq.errors import BadConfig
from rq.layout import Root

if TYPE_CHECKING:
    from rq.spool.disk_speed import Speed

_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
_DESCRIPTORS = 4096
_EARLIEST = 1_735_689_600  # 2025: an earlier clock was never set
_SLOW_SYNC = 0.02  # seconds
_ROOM = 256 * 1024 * 1024  # what measuring may take of a fast disk, for a second


def doctor(root: Root, words: list[str]) -> int:
    made = term.parser("doctor", "Measure the disk and say what RQ can promise on it.")
    made.add_argument("--quick", action="store_true", help="do not measure")
    term.json_option(made)
    args = made.parse_args(words)
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
    for line in warnings:
        print(f"{term.colour('warning:', 'yellow')} {line}")
    if not warnings:
        print(term.colour("nothing to complain about", "green"))
    return OK


def _speed(root: Root, system: disk.FileSystem) -> tuple[Speed | None, list[str]]:
    """Measure; or tell why not: a disk that is full is one to look at, not to fill."""
    from rq.spool import disk_speed

    if system.free_bytes < _ROOM:
        return None, [f"the disk was not measured: that takes {wording.size(_ROOM)}"]
    try:
        return disk_speed.measure(root.path), []
    except OSError as error:
        return None, [f"the disk could not be measured: {error.strerror}"]


def _disk_lines(system: disk.FileSystem) -> Iterator[tuple[str, str]]:
    known = {True: "yes", False: "no", None: "unknown"}[system.has_journal]
    mode = f", data={system.data_mode}" if system.data_mode else ""
    yield "root", str(system.path)
    yield "file system", f"{system.kind} on {system.device}, mounted at {system.mount}"
    yield "its journal", known + mode
    inodes = "as many as fit" if system.free_inodes is None else system.free_inodes
    yield "free", f"{wording.size(system.free_bytes)}, inodes: {inodes}"
    yield "room", f"about {system.room_messages:,} finished messages (logs not counted)"


def _speed_lines(speed: Speed | None) -> Iterator[tuple[str, str]]:
    if speed is None:
        return
    yield (
        "accept",
        f"{speed.sync_p50 * 1e6:.0f} µs p50, {speed.sync_p99 * 1e6:.0f} µs p99 "
        "(a line and fdatasync, as the journal does it)",
    )
    yield "growing file", f"{speed.append_p50 * 1e6:.0f} µs p50 (append and fdatasync)"
    yield "folders", f"{speed.folders:.0f} made per second (mkdir and msg)"


def _slow(speed: Speed | None) -> Iterator[str]:
    if speed is not None and speed.sync_p50 > _SLOW_SYNC:
        yield f"a flush takes {speed.sync_p50 * 1e3:.0f} ms: senders will notice"


def _settings(root: Root) -> Iterator[str]:
    if not root.config.exists():
        yield f"RQ is not installed in {root.path}: run `rq up`"
        return
    try:
        found = config.read_root(root)
    except BadConfig as error:
        yield str(error)
        return
    if found.env == "production" and found.host in _LOCAL_HOSTS:
        yield (
            f"env is production and host is {found.host}: other hosts cannot follow "
            f"message ids of this name; set host in {root.config}"
        )
    yield from access.of_root(root, found, time.time())
    if not place.is_running(root):
        holder = ports.holder(found.addr, found.port)
        if holder is not None:
            yield f"port {found.port} is taken by {holder}"


def _machine() -> Iterator[str]:
    if time.time() < _EARLIEST:
        yield f"the clock says {term.moment(time.time())}: due times will be wrong"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < _DESCRIPTORS:
        yield (
            f"a process may open {hard} files: too few for many connections "
            f"(raise the hard limit to {_DESCRIPTORS})"
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
            "warnings": warnings,
        }
    )
