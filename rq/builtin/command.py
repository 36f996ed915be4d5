"""The script of a queue that `rq queue new` made: runs one command for each message.

No shell reads what a message brings: `{param1}` … `{param4}` are replaced within single
arguments, once, and a value that would be an option, or is missing, ends the message in err
before the command is started.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rq.errors import BadInput
from rq.scripts import program_file
from rq.scripts import python as script
from rq.scripts.pipe import Verb
from rq.words.nesting import Json

FILE = "command.json"  # beside `run`
RUN = f"""\
#!/bin/sh
# Made by `rq queue new`: runs the command in {FILE}, with no shell between.
exec "${{RQ_PYTHON:?is set by RQ}}" -I -m rq.command "${{RQ_REALSCRIPT%/*}}/{FILE}"
"""
_PARAMS = ("param1", "param2", "param3", "param4")
_PLACE = re.compile(r"\{(param[1-4])\}")
_LIKE_A_PLACE = re.compile(r"\{\s*\$?[Pp][Aa][Rr][Aa][Mm][^{}]*\}")
_NAMED = re.compile(r"\{\s*\$?(\w+)\s*\}")
_NEAR = 0.8  # of a name: {parma1}, {parm1}
# Programs that run a word of theirs: as code behind an option, or as a program.
_SHELLS = re.compile(r"(ba|da|z|k|mk|a|c|tc|fi)?sh|busybox|su|runuser|flock|script")
_FIRST_WORD = re.compile(
    r"python[0-9.]*|perl|ruby|node|php|lua|[gmn]?awk|sed|env|sudo|doas|nice|ionice|nohup|"
    r"setsid|timeout|time|stdbuf|xargs|exec"
)
_ALL_WORDS = frozenset({"ssh", "rsh", "eval", "watch", "parallel"})
_CODE = re.compile(r"-[A-Za-z]*c|--command")
_BETWEEN = re.compile(r"-.*|[0-9.]+[smhd]?|\w+=.*", re.DOTALL)
_BEHIND = "--"


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and how a message's parameters get into it."""

    words: tuple[str, ...]
    append: bool = False  # all parameters, behind `--`
    at_home: bool = False  # it runs in $HOME, as under cron
    stdin: str | None = None  # what it reads; None: what a script does

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {"command": list(self.words), "append": self.append}
        if self.at_home:
            data["at_home"] = True
        if self.stdin is not None:
            data["stdin"] = self.stdin
        return data


def parse(data: object) -> Command:
    """Return the command in a file; BadInput says what is wrong with it."""
    fields = data if isinstance(data, dict) else {}
    words, append = fields.get("command"), fields.get("append", False)
    texts = isinstance(words, list) and all(isinstance(word, str) for word in words)
    at_home, stdin = fields.get("at_home", False), fields.get("stdin")
    around = isinstance(at_home, bool) and isinstance(stdin, str | None)
    if not texts or not words or not isinstance(append, bool) or not around:
        raise BadInput(
            'it is not {"command": [WORD, …], "append": true or false, "at_home": true or '
            'false, "stdin": TEXT}'
        )
    return Command(tuple(words), append, at_home, stdin)


def check(command: Command) -> None:
    """BadInput when a message could decide which program is run, or bring code for one."""
    if not command.words or not command.words[0]:
        raise BadInput("there is no command: rq queue new NAME -- COMMAND [ARG …]")
    for word in command.words:
        _check_word(word)
    if _PLACE.search(command.words[0]):
        raise BadInput("a message cannot decide which program is run")
    for at, word in enumerate(command.words):
        if _PLACE.search(word) and (by := _runs(command.words[:at])):
            raise BadInput(
                f"{by} would run what a message brings as a program: {word!r:.60}; put it "
                "into a script of its own, which reads $RQ_PARAM1"
            )
    if command.append and _runs(command.words):
        raise BadInput(
            f"--append would give parameters to {command.words[0]} as a program; put it "
            "into a script of its own, which reads $RQ_PARAM1"
        )


def _check_word(word: str) -> None:
    try:
        word.encode()
    except UnicodeEncodeError:
        raise BadInput(f"a word of the command is not UTF-8: {word!r:.60}") from None
    for place in _LIKE_A_PLACE.findall(word):
        if not _PLACE.fullmatch(place):
            raise BadInput(f"{place} is none of {{param1}} to {{param4}}")
    for name in _NAMED.findall(word):
        near = difflib.get_close_matches(name, _PARAMS, 1, _NEAR)
        if near and name not in _PARAMS:
            raise BadInput(
                f"{{{name}}} is not a parameter; did you mean {{{near[0]}}}?"
            )


def _runs(before: Sequence[str]) -> str:
    """Return what would run the word behind `before` as a program, "" for nothing."""
    for at, word in enumerate(before):
        name, between = os.path.basename(word), before[at + 1 :]
        if name in _ALL_WORDS:
            return name
        if not _SHELLS.fullmatch(name) and not _FIRST_WORD.fullmatch(name):
            continue
        if all(_BETWEEN.fullmatch(word) for word in between):
            return name
        if _SHELLS.fullmatch(name) and _CODE.fullmatch(before[-1]):
            return name
    return ""


def expand(command: Command, params: Mapping[str, bytes], last: int = 0) -> list[bytes]:
    """Return what is started for a message; `last` is the number of its last param.

    BadInput when a parameter is missing, or would become an option.
    """
    words: list[bytes] = []
    for at, template in enumerate(command.words):
        word = _replaced(template, params)
        is_new = word[:1] == b"-" and template[:1] != "-"
        if is_new and _BEHIND not in command.words[:at]:
            raise BadInput(
                f"{template} would be an option, as it begins with a dash; put -- before "
                "it in the command, if that takes it"
            )
        words.append(word)
    if command.append and last:
        words += [] if _BEHIND in command.words else [_BEHIND.encode()]
        words += [params.get(name, b"") for name in _PARAMS[:last]]
    return words


def _replaced(template: str, params: Mapping[str, bytes]) -> bytes:
    """Return an argument with its parameters, which are not looked into again."""
    parts: list[bytes] = []
    for at, part in enumerate(_PLACE.split(template)):
        if at % 2 == 0:
            parts.append(part.encode())
            continue
        value = params.get(part, b"")
        if not value:
            raise BadInput(f"the command needs {part}, and the message has none")
        parts.append(value)
    return b"".join(parts)


# ---- the script


def main(argv: Sequence[str]) -> int:
    """Become the command for the message in the environment."""
    try:
        command = _read(Path(argv[0]))
        params = {
            name: os.environb.get(f"RQ_{name.upper()}".encode(), b"")
            for name in _PARAMS
        }
        words = expand(command, params, _last() if command.append else 0)
        _prepare(command)
    except BadInput as error:
        script.say(Verb.ERR, str(error))
        return 1
    # Python ignores these two, and what is started would go on to.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        program = command.words[0]
        why = program_file.why_not(program, error)
    except ValueError as error:  # a NUL
        program, why = command.words[0], str(error)
    script.say(Verb.ERR, f"{program} cannot be started: {why}")
    return 1


def _prepare(command: Command) -> None:
    """Give the command what it reads, and the directory it runs in; BadInput."""
    try:
        if command.stdin is not None:
            with tempfile.TemporaryFile() as file:
                file.write(command.stdin.encode())
                file.seek(0)
                os.dup2(file.fileno(), 0)
        if command.at_home:
            os.chdir(os.environ.get("HOME") or "/")
    except OSError as error:
        what = error.filename or "its input"
        raise BadInput(
            f"{command.words[0]} was not started: {what}: {error.strerror}"
        ) from None


def _read(path: Path) -> Command:
    try:
        return parse(json.loads(path.read_bytes()))
    except (OSError, ValueError, BadInput) as error:
        raise BadInput(f"{path} cannot be used: {error}") from None


def _last() -> int:
    """Return the number of the last param that our message has; an empty one counts."""
    try:
        message = json.loads(Path("../msg").read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"the message cannot be read: {error}") from None
    present = [n for n, name in enumerate(_PARAMS, 1) if message.get(name) is not None]
    return max(present, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
