"""Reads a crontab: its lines as timers and commands; pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from rq.errors import BadInput
from rq.timers.cron import cron

_FIELDS = 5
_SETTING = re.compile(r"""\s*(["']?)([A-Za-z_]\w*)\1\s*=\s*(.*?)\s*""")
_QUOTED = re.compile(r"""(["'])(.*)\1""")
_PERCENT = re.compile(r"(?<!\\)%")
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_BETWEEN = re.compile(r"&&|\|\||;")
_BEFORE = frozenset({"", "cd", "test", "["})
_LONGEST_NAME = 40
_SHELL = "/bin/sh"
_DAY = 1440  # minutes
# What these say is no variable of the command.
_OF_CRON = frozenset({"MAILTO", "MAILFROM", "CRON_TZ", "RANDOM_DELAY", "SHELL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line that fires: when, and what is run then."""

    number: int  # of the line
    expression: str
    zone: str
    jitter: int  # seconds
    command: str  # as written
    shell: str
    env: Mapping[str, str]
    user: str = ""  # of a system's crontab
    # Who gets mail by MAILTO; none: nobody may; None: it is not said.
    mail: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """What its queue may be called: as the first program that does something."""
        parts = [_program(part) for part in _BETWEEN.split(self.command)]
        programs = [program for program in parts if program not in _BEFORE]
        named = _NO_NAME.sub("-", [*programs, ""][0]).strip("-")
        return named[:_LONGEST_NAME] or "cron"

    @property
    def script(self) -> str:
        """What the shell runs, in the home as with cron; behind the first % is what it
        reads."""
        command, *lines = [
            part.replace("\\%", "%") for part in _PERCENT.split(self.command)
        ]
        script = f'cd "${{HOME:-/}}" || exit\n{command}'
        if not lines:
            return script
        text = "".join(f"{line}\n" for line in lines)
        return f"printf %s {shlex.quote(text)} | (\n{script}\n)"


def _program(command: str) -> str:
    words = [word for word in command.split() if not _SETTING.fullmatch(word)]
    return words[0].rpartition("/")[2] if words else ""


@dataclass(slots=True)
class Crontab:
    """What a crontab says: the lines that fire, and why others cannot, by number."""

    entries: list[Entry] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)


def parse(text: str, zone: str, *, with_users: bool = False) -> Crontab:
    """Return the lines of a crontab, whose times are in `zone` unless it says CRON_TZ;
    `with_users`: a system's, with a user before each command."""
    table = Crontab()
    settings: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if setting := _SETTING.fullmatch(line):
            settings[setting[2]] = _QUOTED.sub(r"\2", setting[3])
            continue
        try:
            table.entries.append(_entry(number, line, settings, zone, with_users))
        except BadInput as error:
            table.refused.append((number, str(error)))
    return table


def _entry(
    number: int, line: str, settings: Mapping[str, str], zone: str, with_users: bool
) -> Entry:
    """Return what a line says; BadInput says why it can be no timer."""
    count = 1 if line.lstrip().startswith("@") else _FIELDS
    words = line.split(None, count + with_users)
    if len(words) <= count + with_users:
        raise BadInput("it has no command behind its time")
    rule = cron(" ".join(words[:count]), settings.get("CRON_TZ") or zone)
    return Entry(
        number=number,
        expression=rule.expression,
        zone=rule.zone,
        jitter=_jitter(settings.get("RANDOM_DELAY", "0")),
        command=words[-1].rstrip(),
        shell=settings.get("SHELL") or _SHELL,
        env={key: value for key, value in settings.items() if key not in _OF_CRON},
        user=words[count] if with_users else "",
        mail=_mail(settings.get("MAILTO")),
    )


def _mail(addresses: str | None) -> tuple[str, ...] | None:
    """Return who gets mail: addresses or users of this machine, with commas between."""
    if addresses is None:
        return None
    return tuple(each for each in re.split(r"[,\s]+", addresses) if each)


def _jitter(minutes: str) -> int:
    if not re.fullmatch(r"\d{1,4}", minutes, re.ASCII) or int(minutes) > _DAY:
        raise BadInput(
            f"RANDOM_DELAY is {minutes!r:.80}; it is minutes, {_DAY} at most"
        )
    return int(minutes) * 60
