"""What nodes answer, word by word: stories of commands beside this file, each with the answer
as a client in a terminal shows it.

A line that begins with `>` is a command, `> pass SECONDS` lets time go by; what comes below is
what is answered to it, at once or to those that waited. `> look NAME` shows
the row that an operator sees of queues of that name, and the memory that all takes. `$1` stands for the first id that was
given, `''` for an empty word. `writes` has the kinds of lines that a node writes of it. In a
story of several nodes each command is `A>` that node's, or `> kill A`, `> restart A`, and what
the nodes tell each other is shown, too.
"""

import re
import shlex
from itertools import count
from pathlib import Path

import orjson
import pytest
from harness.broker_cluster import Cluster
from harness.broker_node import Run

from rq.broker.admin.views import queues_named
from rq.broker.dialects.call import Blocked
from rq.resp import Failure, NilArray, Status

STORIES = sorted((Path(__file__).parent / "broker_words").glob("*.txt"))
_ID = re.compile(r"D-\w{8}-[\w+/]{24}-\w{4}|\b\d{13}-\d+\b|\b\d{16}_\d+\b")
_NODE = re.compile(r"\b([abc])\1{39}\b")


class _Alone:
    """One node."""

    def __init__(self):
        self._run = Run()

    def do(self, words):
        if words[0] == "pass":
            self._run.pass_by(float(words[1]))
        else:
            yield from self._rows(words[1].encode())

    def _rows(self, name):
        node, now = self._run.node, self._run.now
        for row in queues_named(node, name, now):
            yield "row:", Status(" ".join(map(str, row)))
        yield "in all:", Status(f"{node.size} {node.used_memory}")

    def ask(self, _, words, client):
        return self._run.ask(*words, client=client)

    def heard(self):
        for _, answer in self._run.answers():
            yield "to who waits:", answer
        if self._run.lines:
            yield "writes:", _kinds(self._run.lines)
            self._run.lines.clear()


class _Together:
    """Three nodes, and what they tell each other."""

    def __init__(self):
        self._cluster = Cluster(3)
        self._written = dict.fromkeys(self._cluster.ids, 0)

    def do(self, words):
        if words[0] == "pass":
            self._cluster.pass_by(float(words[1]))
        else:
            getattr(self._cluster, words[0])("ABC".index(words[1]))
        return ()

    def ask(self, name, words, client):
        return self._cluster.ask("ABC".index(name), *words, client=client)

    def heard(self):
        cluster = self._cluster
        for sender, letter in cluster.carried:
            told = Status(repr(letter.message))
            yield f"{self._name(sender)} to {self._name(letter.to)}:", told
        for (node, _), answer in cluster.answers.items():
            yield f"to who waits at {self._name(node)}:", answer
        for node, written in cluster.disks.items():
            if len(written) > self._written[node]:
                new = _kinds(written[self._written[node] :])
                yield f"{self._name(node)} writes:", new
                self._written[node] = len(written)
        cluster.carried.clear()
        cluster.answers.clear()

    def _name(self, node):
        return "ABC"[self._cluster.ids.index(node)]


def _kinds(written):
    return Status(", ".join(orjson.loads(text)["ev"] for _, text in written))


class _Told:
    """Plays a story again, and tells it as it went."""

    def __init__(self, nodes):
        self._nodes = nodes
        self._clients = count(1)  # each command is of another
        self._ids = []

    def of(self, name, command):
        words = [self._with_ids(word) for word in shlex.split(command)]
        if words[0].islower():
            seen = self._nodes.do(words)
        else:
            seen = ()
            yield from self._lines(self._nodes.ask(name, words, next(self._clients)))
        for told, value in (*seen, *self._nodes.heard()):
            yield told
            yield from self._lines(value)

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
        return _NODE.sub(lambda m: m[1].upper(), _ID.sub(self._name, text))

    def _name(self, match):
        if match[0] not in self._ids:
            self._ids.append(match[0])
        return f"${self._ids.index(match[0]) + 1}"


def told(text):
    is_alone = not re.search("^[ABC]>", text, re.MULTILINE)
    tale = _Told(_Alone() if is_alone else _Together())
    for line in text.splitlines():
        name, is_command, command = line.partition(">")
        if line.startswith("#") or not line:
            yield line
        elif is_command and name in ("", "A", "B", "C"):
            yield line
            yield from tale.of(name, command)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_goes_as_it_is_told(path):
    text = path.read_text()
    assert "\n".join(told(text)) + "\n" == text
