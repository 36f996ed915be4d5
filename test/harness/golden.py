"""Transcripts of what a broker answers, byte for byte of their kinds, and what plays them.

A line `> WORD …` is a command, with quotes as in a shell; `b> …` is one of a second client.
Then comes its answer, an element a line, or several with ` | ` between: `+status`, `-error`,
`:7`, `$text`, `*2` for an array, `%7` for a map, `nil`, and `nil array`, which RESP3 does not
tell apart. `{name}` stands for a text that is the same wherever the name stands, `{}` for any
text. A command without an answer waits; `b<` is where that comes. `wait 0.5` is a pause.
"""

from __future__ import annotations

import re
import shlex
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.broker import Broker, command

_SIZED = (b"*", b"%")


class Player:
    """Plays transcripts with a broker, in one version of the protocol."""

    def __init__(self, broker: Broker, version: int) -> None:
        self._broker = broker
        self._version = version
        self._clients: dict[str, _Wire] = {}
        self._names: dict[str, str] = {}

    def play(self, path: Path) -> None:
        """Play a transcript; AssertionError tells the line that differs."""
        lines = path.read_text().splitlines()
        name, expected, at = "", [], 0
        for number, text in enumerate([*lines, "> "], 1):
            line = text.strip()
            said = re.match(r"([a-z]?)([<>]) ?(.*)", line)
            if said is None and not line.startswith("wait "):
                if line and not line.startswith("#"):
                    expected += line.split(" | ")
                continue
            if expected:
                self._expect(name, expected, f"{path.name}:{at}: {lines[at - 1]}")
            expected, at = [], number
            if said is None:
                time.sleep(float(line.split()[1]))
            elif said[3] or said[2] == "<":
                name = said[1]
                self._say(name, said[3])

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()

    def _say(self, name: str, text: str) -> None:
        if name not in self._clients:
            wire = self._clients[name] = _Wire(self._broker.port)
            if self._version == 3:
                wire.send(["HELLO", "3"])
                list(wire.answer())
        if text:
            self._clients[name].send([self._filled(word) for word in shlex.split(text)])

    def _filled(self, word: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: self._names[found[1]], word)

    def _expect(self, name: str, expected: list[str], where: str) -> None:
        answer = list(self._clients[name].answer())
        wanted = [self._in_version(each.strip()) for each in expected]
        context = f"{where}\n  expected {wanted}\n  answered {answer}"
        assert len(answer) == len(wanted), context
        for got, want in zip(answer, wanted, strict=True):
            match = re.fullmatch(self._pattern(want), got, re.DOTALL)
            assert match is not None, f"{context}\n  {got!r} is not {want!r}"
            self._names.update(match.groupdict())

    def _in_version(self, element: str) -> str:
        if element in ("nil", "nil array"):
            if self._version == 3:
                return "_"
            return "$-1" if element == "nil" else "*-1"
        if element.startswith("%") and self._version == 2:
            return f"*{2 * int(element[1:])}"
        return element

    def _pattern(self, element: str) -> str:
        pattern = ""
        for part in re.split(r"(\{\w*\})", element):
            if not re.fullmatch(r"\{\w*\}", part):
                pattern += re.escape(part)
            elif part == "{}":
                pattern += ".*"
            elif part[1:-1] in self._names:
                pattern += re.escape(self._names[part[1:-1]])
            else:
                pattern += f"(?P<{part[1:-1]}>.+)"
        return pattern


class _Wire:
    """A connection that gives answers as their elements, each with its kind."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._file = self._socket.makefile("rb")

    def send(self, words: list[str]) -> None:
        self._socket.sendall(command(*words))

    def answer(self) -> Iterator[str]:
        """Give the elements of the next answer."""
        line = self._file.readline()
        assert line.endswith(b"\r\n"), "the broker has closed the connection"
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"$" and rest != "-1":
            body = self._file.read(int(rest) + 2)[:-2]
            yield "$" + body.decode(errors="backslashreplace")
            return
        yield line[:-2].decode()
        if kind in _SIZED and rest != "-1":
            for _ in range(int(rest) * (1 + (kind == b"%"))):
                yield from self.answer()

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def commands_of(paths: Mapping[str, Path]) -> set[str]:
    """Return the names of the commands that transcripts play."""
    said = re.compile(r"^[a-z]?> ?([\w.]+)", re.MULTILINE)
    texts = [path.read_text() for path in paths.values()]
    return {name.upper() for text in texts for name in said.findall(text)}
