"""Reads a crontab: its lines as timers and commands; pure."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rq.config import notices
from rq.errors import BadInput
from rq.timers.cron import cron

_FIELDS = 5
_BLANKS = " \t"
# What cron takes for a variable. A quote at the beginning of a value ends it, too; any
# other belongs to it.
_SETTING = re.compile(
    r"""(?:(["'])((?:(?!\1)[^=])*)\1|((?!["'])[^ \t\v\f\r=]*))[ \t\v\f\r]*=[ \t\v\f\r]*"""
    r"""(?:(["'])((?:(?!\4).)*)\4|((?!["'\s]).+?))[ \t\v\f\r]*""",
    re.DOTALL | re.ASCII,
)
_LIKE_A_SETTING = re.compile(r"""["']?[A-Za-z_]\w*["']?[ \t]*=""", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OURS = "RQ_"
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # bytes that are no UTF-8, too
_PERCENT = re.compile(r"\\%|%")
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_ENDS = ";&|()"  # of a command, in a shell
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII)
_BEFORE = frozenset({"", "cd", "test", "["})
_TEXT = re.compile("-[a-z]*c")  # the option with which a shell is given a text
_LONGEST_NAME = 40
_DEEPEST = 8  # wrappers in wrappers
_SHELL = "/bin/sh"
_DAY = 1440  # minutes
# What these say is no variable of the command; LOGNAME is who runs it.
_OF_CRON = frozenset({"MAILTO", "MAILFROM", "CRON_TZ", "RANDOM_DELAY", "LOGNAME"})


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How a program that runs another one is called."""

    operands: int = 0  # before the program
    valued: frozenset[str] = frozenset()  # options whose value is the next word
    takes_text: bool = False  # -c has a text for the shell


_SHELL_RUNS = Wrapper(0, frozenset({"-o"}), takes_text=True)
_LOCK = frozenset({"-w", "--timeout", "-E", "--conflict-exit-code", "--wait"})
# Named by what they run, a job is `backup` and not `flock`.
_WRAPPERS: Mapping[str, Wrapper] = {
    "chronic": Wrapper(),
    "chrt": Wrapper(1),
    "command": Wrapper(),
    "env": Wrapper(0, frozenset({"-u", "--unset", "-C", "--chdir"})),
    "exec": Wrapper(),
    "flock": Wrapper(1, _LOCK, takes_text=True),
    "ionice": Wrapper(0, frozenset({"-c", "-n", "--class", "--classdata"})),
    "nice": Wrapper(0, frozenset({"-n", "--adjustment"})),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "stdbuf": Wrapper(0, frozenset({"-i", "-o", "-e"})),
    "sudo": Wrapper(0, frozenset({"-u", "-g", "--user", "--group"})),
    "systemd-cat": Wrapper(0, frozenset({"-t", "-p"})),
    "taskset": Wrapper(1),
    "time": Wrapper(),
    "timeout": Wrapper(1, frozenset({"-k", "-s", "--kill-after", "--signal"})),
    **dict.fromkeys(("sh", "bash", "dash", "ksh", "zsh"), _SHELL_RUNS),
}


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
    # Who gets mail by MAILTO; empty: no mail is sent; None: it is not said.
    mail: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """What its queue may be called: as the first program that does something."""
        named = _NO_NAME.sub("-", _job(self.command)).strip("-")
        return named[:_LONGEST_NAME] or "cron"

    @property
    def text(self) -> str:
        """What the shell is given: up to the first %."""
        return _parted(self.command)[0]

    @property
    def stdin(self) -> str | None:
        """What the command reads: what stands behind the first %, in which each % is the
        end of a line; None: there is no %."""
        rest = _parted(self.command)[1]
        if rest is None:
            return None
        text = _PERCENT.sub(lambda match: "%" if match[0] == r"\%" else "\n", rest)
        return text if not text or text.endswith("\n") else f"{text}\n"


def _parted(command: str) -> tuple[str, str | None]:
    """Return what stands before the first % and behind it. A backslash takes its meaning
    from a %, and from a backslash, in the first part alone: so Debian's cron."""
    text: list[str] = []
    is_escaped = False
    for at, char in enumerate(command):
        if is_escaped:
            text[-1:] = [char] if char in "%\\" else ["\\", char]
            is_escaped = False
        elif char == "%":
            return "".join(text), command[at + 1 :]
        else:
            text.append(char)
            is_escaped = char == "\\"
    return "".join(text), None


def _job(command: str, depth: int = 0) -> str:
    """Return the first program of a command that does something of its own, "" if there
    is none: not what only says how, when or as whom another one runs."""
    jobs = (_program(words, depth) for words in _simple(command))
    return next((job for job in jobs if job not in _BEFORE), "")


def _simple(command: str) -> Iterator[list[str]]:
    """Give the words of the commands that a shell would run one after the other."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=_ENDS)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote that is not closed
        words = _words(command)
    for is_end, group in itertools.groupby(words, lambda word: word[0:1] in _ENDS):
        if not is_end:
            yield list(group)


def _program(words: list[str], depth: int) -> str:
    """Return what a command runs, without its folder, behind all wrappers."""
    rest = [*itertools.dropwhile(_ASSIGNED.fullmatch, words)]
    if not rest:
        return ""
    name, rest = rest[0].rpartition("/")[2], rest[1:]
    wrapper = _WRAPPERS.get(name)
    if wrapper is None or depth > _DEEPEST:
        return name
    return _wrapped(wrapper, rest, depth + 1) or name


def _wrapped(wrapper: Wrapper, words: list[str], depth: int) -> str:
    """Return what a wrapper runs; "" if that is nothing."""
    operands = wrapper.operands
    while words:
        word = words.pop(0)
        if wrapper.takes_text and _TEXT.fullmatch(word):
            return _job(words[0], depth) if words else ""
        if word.startswith("-"):
            del words[: word in wrapper.valued]
        elif operands:
            operands -= 1
        elif not _ASSIGNED.fullmatch(word):
            return _program([word, *words], depth)
    return ""


def _words(text: str, most: int = 0) -> list[str]:
    """Return what blanks part: to cron these are space and tab alone."""
    return [
        word
        for word in re.split(r"[ \t]+", text.lstrip(_BLANKS), maxsplit=most)
        if word
    ]


@dataclass(slots=True)
class Crontab:
    """What a crontab says: the lines that fire, and why others cannot, by number."""

    entries: list[Entry] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)


def parse(text: str, zone: str, *, with_users: bool = False) -> Crontab:
    """Return the lines of a crontab, whose times are in `zone` unless it says CRON_TZ;
    `with_users`: a system's, with a user before each command.

    Below a variable that is left out no line is taken: what a command does without it,
    say with `rm -r "$DIR"/*`, is not what was meant.
    """
    table = Crontab()
    settings: dict[str, str] = {}
    lacks = 0  # the line of the first variable that is left out
    for number, line in _lines(text):
        is_setting = _LIKE_A_SETTING.match(line) or _SETTING.fullmatch(line)
        try:
            if is_setting:
                settings.update([_setting(line)])
            elif lacks:
                raise BadInput(f"it may need the variable of line {lacks}")
            else:
                entry = _entry(number, line, settings, zone, with_users)
                table.entries.append(entry)
        except BadInput as error:
            table.refused.append((number, str(error)))
            lacks = lacks or (number if is_setting else 0)
    return table


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Give the lines that say something, and their numbers. They end at a newline, and
    at nothing else that Python would take for the end of a line."""
    for number, line in enumerate(text.split("\n"), 1):
        if (rest := line.lstrip(_BLANKS)) and not rest.startswith("#"):
            yield number, rest


def _setting(line: str) -> tuple[str, str]:
    """Return a variable and its value; BadInput when cron or RQ would not take it."""
    _check_text(line)
    match = _SETTING.fullmatch(line)
    if match is None:
        raise BadInput(
            "cron takes no such variable: a quote must enclose the whole value and not be "
            'in it, and no value at all is ""'
        )
    name = match[2] if match[1] else match[3]
    # Blanks at the end go even within quotes.
    value = (match[5] if match[4] else match[6]).rstrip(" \t\v\f\r")
    if not _VARIABLE.fullmatch(name):
        raise BadInput(f"{name!r:.80} cannot be the name of a variable")
    if name.startswith(_OURS):
        raise BadInput(f"{name:.80} cannot be set: names that begin with RQ_ are RQ's")
    if name == "MAILTO":
        _mail(value)
    return name, value


def _check_text(line: str) -> None:
    if bad := _NO_TEXT.search(line):
        byte = ord(bad[0]) & 0xFF
        raise BadInput(
            f"the byte 0x{byte:02x} in it is no text in UTF-8: convert the file"
        )


def _entry(
    number: int, line: str, settings: Mapping[str, str], zone: str, with_users: bool
) -> Entry:
    """Return what a line says; BadInput says why it can be no timer."""
    _check_text(line)
    count = 1 if line.startswith("@") else _FIELDS
    words = _words(line, count + with_users)
    if len(words) <= count + with_users:
        raise BadInput("it has no command behind its time")
    rule = cron(" ".join(words[:count]), settings.get("CRON_TZ") or zone)
    return Entry(
        number=number,
        expression=rule.expression,
        zone=rule.zone,
        jitter=_jitter(settings.get("RANDOM_DELAY", "0")),
        command=words[-1],
        shell=settings.get("SHELL") or _SHELL,
        env={key: value for key, value in settings.items() if key not in _OF_CRON},
        user=words[count] if with_users else "",
        mail=_mail(settings.get("MAILTO")),
    )


def _mail(addresses: str | None) -> tuple[str, ...] | None:
    """Return who gets mail: addresses or users of this machine, with commas between."""
    if addresses is None:
        return None
    mail = tuple(each for each in re.split(r"[, \t]+", addresses) if each)
    try:
        if mail:
            notices.check_settings({"on_err": {"mail": list(mail)}})
    except (BadInput, ValueError) as error:
        raise BadInput(f"MAILTO, {error}") from None
    return mail


def _jitter(minutes: str) -> int:
    if not re.fullmatch(r"\d{1,4}", minutes, re.ASCII) or int(minutes) > _DAY:
        raise BadInput(
            f"RANDOM_DELAY is {minutes!r:.80}; it is minutes, {_DAY} at most"
        )
    return int(minutes) * 60
