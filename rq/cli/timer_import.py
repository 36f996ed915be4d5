"""`rq timer import`: the lines of a crontab as queues and timers."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path

from rq import config, zones
from rq.builtin import command
from rq.builtin.command import Command
from rq.cli import FAILED, OK, newqueue, place, term
from rq.cli.newqueue import NewQueue
from rq.config import files, notices
from rq.errors import BadConfig, BadInput, Refused
from rq.layout import Root
from rq.timers import crontab
from rq.timers.crontab import Entry
from rq.words.nesting import Json

_STDIN = "-"
_LARGEST = 2**20  # bytes of a crontab


def options(kinds: term.Verbs) -> None:
    """Add what `rq timer import` takes."""
    parser = kinds.add_parser(
        "import", help="make a queue and a timer of each line of a crontab"
    )
    parser.add_argument("file", metavar="CRONTAB", help="a file, or - for stdin")
    parser.add_argument("--timezone", default="", metavar="ZONE", help="of its times")
    term.flag(parser, "--system", "a user stands before each command")
    term.flag(parser, "--dry-run", "say what would be made, make nothing")


def take_over(root: Root, args: argparse.Namespace) -> int:
    """Make a queue and a timer of each line; FAILED when some could not be."""
    place.root_config(root)
    zone = args.timezone or _own_zone()
    zones.zone(zone)
    table = crontab.parse(_read(args.file), zone, with_users=args.system)
    refused, chosen = list(table.refused), set[str]()
    for entry in table.entries:
        try:
            _check_user(root, entry)
            print(f"line {entry.number}: {_take(root, entry, chosen, args.dry_run)}")
        except (BadInput, BadConfig, Refused) as error:
            refused.append((entry.number, str(error)))
    for number, why in sorted(refused):
        term.note(f"line {number} is left out: {term.plain(why)}")
    return FAILED if refused else OK


def _read(path: str) -> str:
    try:
        with open(0 if path == _STDIN else path, "rb", closefd=path != _STDIN) as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise BadInput(f"{path} is larger than a crontab of {_LARGEST:,} bytes")
    return data.decode("utf-8", "surrogateescape")  # a line says that it is no UTF-8


def _own_zone() -> str:
    """Return the zone that cron's times are in here."""
    try:
        return zones.of_machine(time.time(), os.environ)
    except BadInput as error:
        raise BadInput(
            f"{error}: say which zone the times of the crontab are in, as in --timezone "
            "Europe/Berlin"
        ) from None


def _check_user(root: Root, entry: Entry) -> None:
    """Refused when a line runs as another user than the scripts of this RQ."""
    if not entry.user:
        return
    owner = root.path.stat().st_uid
    try:
        uid = pwd.getpwnam(entry.user).pw_uid
    except KeyError:
        raise Refused(f"there is no user {entry.user} here") from None
    if uid != owner:
        raise Refused(f"it runs as {entry.user}, and scripts of this RQ do not")


def _take(root: Root, entry: Entry, chosen: set[str], dry_run: bool) -> str:
    """Make what is missing of a line's queue and timer; return what was done. `chosen`
    are the names of the lines before it."""
    runs = Command((entry.shell, "-c", entry.text), at_home=True, stdin=entry.stdin)
    command.check(runs)
    notices.check_settings(_tells(entry))
    name = _made_before(root, entry, runs, chosen) or next(
        name for name in _names(entry) if _fits(root, entry, runs, name, chosen)
    )
    chosen.add(name)
    path = root.timers / f"{name}.json"
    if path.exists():
        return f"queue and timer {name} are there already"
    rule = f"{entry.expression} in {entry.zone}"
    if dry_run:
        return f"queue and timer {name} would be made, {rule}"
    if not _runs(root, name, runs):
        queue = NewQueue(
            name=name,
            runs=runs,
            pull=False,
            workers=1,
            env_vars=entry.env,
            tells=_tells(entry),
        )
        newqueue.write(root, queue)
    files.write_state(path, _timer(entry, name))
    return f"queue and timer {name} are made, {rule}"


def _tells(entry: Entry) -> dict[str, object]:
    """Return the settings that mail what cron would: what is printed, each time. That a
    command failed without a word is told, too."""
    if entry.mail is None:
        return {}
    if not entry.mail:
        return {"on_err": False, "on_output": False}
    mail = list(entry.mail)
    return {"on_err": {"mail": mail, "every": 0}, "on_output": {"mail": mail}}


def _made_before(root: Root, entry: Entry, runs: Command, chosen: set[str]) -> str:
    """Return the queue that was made of a line before, under whatever name; "" if none
    was: imported twice, a line does not run twice."""
    for folder in sorted(root.commands.glob("*/")):
        timer = root.timers / f"{folder.name}.json"
        if (
            folder.name not in chosen
            and _runs(root, folder.name, runs)
            and _holds(timer, _timer(entry, folder.name))
        ):
            return folder.name
    return ""


def _fits(root: Root, entry: Entry, runs: Command, name: str, chosen: set[str]) -> bool:
    """Whether a name is free for a line, or what has it was made of this line before."""
    path = root.timers / f"{name}.json"
    is_timer = _holds(path, _timer(entry, name))
    if name in chosen or (os.path.lexists(path) and not is_timer):
        return False
    if _runs(root, name, runs):
        return True
    try:
        newqueue.check_free(root, name)
    except Refused:
        return False
    return not is_timer


def _runs(root: Root, name: str, runs: Command) -> bool:
    """Whether a queue was made for a command before."""
    return _holds(root.commands / name / command.FILE, runs.to_json())


def _names(entry: Entry) -> Iterator[str]:
    yield entry.name
    for nth in itertools.count(2):
        yield f"{entry.name}-{nth}"


def _timer(entry: Entry, name: str) -> dict[str, Json]:
    jitter: dict[str, Json] = {"jitter": entry.jitter} if entry.jitter else {}
    rule: dict[str, Json] = {"cron": entry.expression, "timezone": entry.zone}
    return {**rule, **jitter, "msg": {"dest": name}}


def _holds(path: Path, data: Json) -> bool:
    """Whether a file is there and holds just this."""
    if not path.is_file():
        return False
    return bool(config.read_json(path) == json.loads(json.dumps(data)))
