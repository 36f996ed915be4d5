"""The owner's word: five times a second at most, and never waited for."""

import socket
import time
from types import SimpleNamespace

import pytest

from rq.index import word
from rq.index.word import Said, Teller
from rq.journal.segments import Position
from rq.layout import Root


class Loop:
    """A clock, and timers that are called when it is set on."""

    def __init__(self):
        self.now = 100.0
        self.timers = []

    def time(self):
        return self.now

    def call_at(self, at, act):
        self.timers.append((at, act))
        return SimpleNamespace(cancel=self.timers.clear)

    def pass_to(self, now):
        self.now = now
        due = [timer for timer in self.timers if timer[0] <= now]
        self.timers = [timer for timer in self.timers if timer[0] > now]
        for _, act in due:
            act()


@pytest.fixture
def root(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    return root


@pytest.fixture
def hearing_socket(root):
    with word.listen(root) as sock:
        yield sock


@pytest.fixture
def owner(root):
    """An owner's journal and loop, and what tells of them."""
    owner = SimpleNamespace(seq=0, loop=Loop())
    owner.position = lambda: Position("1", 50, owner.seq, 7, "0badcafe")
    owner.teller = Teller(root, "mail", owner.position, owner.loop)
    yield owner
    owner.teller.close()


def turn(owner, events=1):
    owner.seq += events
    owner.teller.tell()


def heard(sock):
    """Return the seqs of all words that have come."""
    seqs = []
    while True:
        try:
            seqs.append(word.decoded(sock.recv(word.LONGEST)).seq)
        except BlockingIOError:
            return seqs


def test_a_word_says_what_is_durable(owner, hearing_socket):
    turn(owner, 3)
    said = word.decoded(hearing_socket.recv(word.LONGEST))
    assert said == Said(queue="mail", journal="0badcafe", segment="1", seq=3)


def test_five_a_second_at_most_and_the_last_is_said(owner, hearing_socket):
    for number in range(1000):
        owner.loop.pass_to(100.0 + number / 1000)
        turn(owner)
    seqs = heard(hearing_socket)
    assert 4 <= len(seqs) <= 6
    owner.loop.pass_to(102.0)
    assert heard(hearing_socket) == [1000]
    turn(owner, 0)
    assert heard(hearing_socket) == []
    assert owner.loop.timers == []


def test_who_hears_nothing_costs_nothing(owner):
    """No process: a word is tried again after some seconds, and no timer waits for that."""
    turn(owner)
    assert owner.loop.timers == []
    with word.listen(Root(owner.teller._path.parent.parent)) as sock:
        owner.loop.pass_to(101.0)
        turn(owner)
        assert heard(sock) == []
        owner.loop.pass_to(100.0 + word.AGAIN)
        owner.teller.tell()
        assert heard(sock) == [2]


def test_a_full_socket_is_not_waited_for(owner, hearing_socket):
    begun = time.monotonic()
    for number in range(2000):
        owner.loop.pass_to(100.0 + number * 10)
        turn(owner)
    assert time.monotonic() - begun < 5
    seqs = heard(hearing_socket)
    assert 0 < len(seqs) < 2000
    owner.loop.pass_to(1e6)
    turn(owner)
    assert heard(hearing_socket) == [2001]


def test_the_socket_is_for_our_user_alone(root, hearing_socket):
    assert root.index_socket.stat().st_mode & 0o777 == 0o600
    assert hearing_socket.family == socket.AF_UNIX


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b'{"queue":"a","seq":"x"}', b"\xff"]
)
def test_what_is_no_word_says_nothing(data):
    assert word.decoded(data) is None


def test_it_can_be_asked_to_begin_again(root, hearing_socket):
    assert word.ask_rebuild(root)
    assert word.asks_rebuild(hearing_socket.recv(word.LONGEST))
    hearing_socket.close()
    assert not word.ask_rebuild(root)
