"""What a node answers, word by word: stories of commands beside this file, each with the
answer as a client in a terminal shows it.

A line that begins with `>` is a command, `> pass SECONDS` lets time go by; what comes below is
what is answered to it, at once or to those that waited. `$1` stands for the first id that was
given, `''` for an empty word.
"""

import re
import shlex
from itertools import count
from pathlib import Path

import pytest
from harness.broker_node import Run

from rq.broker.dialects.call import Blocked
from rq.resp import Failure, NilArray, Status

STORIES = sorted((Path(__file__).parent / "broker_words").glob("*.txt"))
_ID = re.compile(r"D-\w{8}-[\w+/]{24}-\w{4}|\b\d{13}-\d+\b|\b\d{16}_\d+\b")


class _Told:
    """Plays a story again, and tells it as it went."""

    def __init__(self):
        self._run = Run()
        self._clients = count(1)  # each command is of another
        self._ids = []

    def of(self, command):
        words = [self._with_ids(word) for word in shlex.split(command)]
        if words[0] == "pass":
            self._run.pass_by(float(words[1]))
        else:
            yield from self._lines(self._run.ask(*words, client=next(self._clients)))
        for _, answer in self._run.answers():
            yield "to who waits:"
            yield from self._lines(answer)

    def _with_ids(self, word):
        return re.sub(r"\$(\d+)", lambda m: self._ids[int(m[1]) - 1], word)

    def _lines(self, value, indent="  "):
        if isinstance(value, list) and value:
            for each in value:
                yield from self._items(each, indent)
        else:
            yield indent + self._text(value)

    def _items(self, value, indent):
        if isinstance(value, list) and value:
            first, *others = self._lines(value, "")
            yield f"{indent}- {first}"
            yield from (f"{indent}  {line}" for line in others)
        else:
            yield indent + "- " + self._text(value)

    def _text(self, value):
        match value:
            case None | NilArray():
                return "(nil)"
            case []:
                return "(none)"
            case Blocked():
                return "(waits)"
            case Failure(text):
                return f"(error) {text}"
            case Status(text):
                return self._named(text)
            case bytes():
                return self._named(repr(value)[1:])
        return self._named(str(value))

    def _named(self, text):
        return _ID.sub(self._name, text)

    def _name(self, match):
        if match[0] not in self._ids:
            self._ids.append(match[0])
        return f"${self._ids.index(match[0]) + 1}"


def told(text):
    tale = _Told()
    for line in text.splitlines():
        if line.startswith(("#", ">")) or not line:
            yield line
        if line.startswith(">"):
            yield from tale.of(line.removeprefix(">"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_goes_as_it_is_told(path):
    text = path.read_text()
    assert "\n".join(told(text)) + "\n" == text
