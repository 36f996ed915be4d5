"""What a connection to the control socket of a queue reads, answers, holds back and drops."""

import asyncio
import os
import socket
import time

import orjson
import pytest
from harness.waiting import wait_until

from rq.access.roles import Principal, Role
from rq.access.sockets import Asker
from rq.errors import Busy
from rq.proc.peers import Peer
from rq.queues.control import connection as rules
from rq.queues.control import connections
from rq.queues.control.connection import NEVER_ASKED, RESTS, Connection
from rq.rpc import wire

ASKER = Asker(Principal(name="ann", role=Role.ADMIN), Peer(1, 0, 0), True)
OTHER = Asker(Principal(name="bob", role=Role.VIEWER), Peer(1, 1001, 1001), False)


class Talk:
    """A connection on a loop, and the socket at its other end."""

    def __init__(self, loop, asker=ASKER):
        here, self.there = socket.socketpair()
        here.setblocking(False)
        self.there.settimeout(10)
        self.loop = loop
        self.requests = []
        self.slots = []
        self.closed = 0
        self.on_request = lambda: None
        self.connection = Connection(here, asker, loop, self._request, self._close)

    def _request(self, connection, payload):
        self.requests.append(payload)
        self.slots.append(connection.slot())
        self.on_request()

    def _close(self, connection):
        self.closed += 1

    def turn(self):
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def ask(self, *payloads):
        self.there.sendall(b"".join(map(wire.frame, payloads)))
        self.turn()

    def give(self, number, data):
        self.slots[number].data = data
        self.connection.owed += len(data)
        self.connection.send_ready()

    def until(self, is_so):
        def turned():
            self.turn()
            return is_so()

        wait_until(turned)

    def heard(self):
        """Return all that has come, up to the end."""
        self.turn()
        return b"".join(iter(lambda: self.there.recv(65536), b""))

    def received(self):
        """Return what has come by now."""
        self.there.setblocking(False)
        try:
            return self.there.recv(65536)
        except BlockingIOError:
            return b""
        finally:
            self.there.settimeout(10)


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def talk(loop):
    talk = Talk(loop)
    yield talk
    talk.connection.close()
    talk.there.close()


def test_replies_leave_in_the_order_of_the_requests(talk):
    talk.ask(b"a", b"b", b"c")
    assert talk.requests == [b"a", b"b", b"c"]
    talk.give(1, b"B")
    assert talk.received() == b""
    talk.give(0, b"A")
    assert talk.received() == b"AB"
    assert not talk.connection.idle
    talk.give(2, b"C")
    assert talk.received() == b"C"
    assert talk.connection.idle
    assert talk.connection.owed == 0


def test_a_frame_that_comes_in_pieces_is_one_request_and_late_from_its_first(talk):
    whole = wire.frame(b"request")
    before = time.monotonic()
    talk.there.sendall(whole[:5])
    talk.turn()
    begun = talk.connection.partial_since
    assert begun >= before
    talk.there.sendall(whole[5:-1])
    talk.turn()
    assert talk.connection.partial_since == begun
    talk.there.sendall(whole[-1:] + whole[:3])  # another begins, later
    talk.turn()
    assert talk.requests == [b"request"]
    assert talk.connection.partial_since > begun
    talk.there.sendall(whole[3:])
    talk.turn()
    assert talk.connection.partial_since is None
    assert talk.requests == [b"request"] * 2


def test_what_is_no_frame_gets_one_sentence_and_an_end(talk):
    talk.there.sendall(b"GET / HTTP/1.1\r\n\r\n")
    talk.turn()
    assert b"a frame" in talk.heard()
    assert talk.closed == 1
    assert talk.requests == []


def _passing(talk, data, number):
    """Send bytes with so many descriptors, which lead to the same file."""
    read, write = os.pipe()
    os.close(write)
    socket.send_fds(talk.there, [data], [read] * number)
    os.close(read)


def _open():
    return len(os.listdir("/proc/self/fd"))


def test_descriptors_come_with_the_request_that_they_were_sent_with(talk):
    taken = []
    talk.on_request = lambda: taken.append(talk.connection.take_fd())
    before = _open()
    _passing(talk, wire.frame(b"with") + wire.frame(b"b")[:4], 1)
    talk.turn()
    assert [fd is None for fd in taken] == [
        True
    ]  # the second has them, which is not whole
    talk.there.sendall(wire.frame(b"b")[4:] + wire.frame(b"c"))
    talk.turn()
    assert [fd is None for fd in taken] == [True, False, True]
    os.close(taken[1])
    _passing(talk, wire.frame(b"d") + wire.frame(b"e"), 2)
    talk.turn()
    assert [fd is None for fd in taken[3:]] == [True, False]
    os.close(taken[4])
    assert _open() == before  # the one that was not taken is closed


def test_descriptors_of_a_request_that_is_never_whole_are_closed(talk):
    before = _open()
    _passing(talk, wire.frame(b"some")[:9], 3)
    talk.turn()
    assert _open() == before + 3
    talk.there.shutdown(socket.SHUT_WR)
    talk.turn()
    assert _open() == before - 1  # its own socket, too
    assert talk.closed == 1


def test_no_more_descriptors_than_a_request_may_have(talk):
    before = _open()
    _passing(talk, wire.frame(b"some")[:9], 16)
    talk.turn()
    assert talk.closed == 0
    _passing(talk, b"x", 1)
    talk.turn()
    assert b"at most 16 descriptors" in talk.heard()
    assert _open() == before - 1


def test_what_follows_a_held_request_waits_for_it(talk):
    talk.on_request = talk.connection.hold
    talk.ask(b"a", b"b")
    talk.ask(b"c")
    assert talk.requests == [b"a"]
    talk.on_request = lambda: None
    talk.connection.release()
    talk.turn()
    assert talk.requests == [b"a", b"b", b"c"]


def test_an_asker_that_hangs_up_while_his_request_is_held_is_heard_of(talk):
    """… by those that listen alone."""
    lost = []
    talk.on_request = lambda: (
        talk.connection.if_lost(lambda: lost.append(1)),
        talk.connection.hold(),
    )
    talk.ask(b"a")
    talk.there.close()
    talk.turn()
    assert lost == []
    talk.connection.listen()
    talk.turn()
    assert lost == [1]
    talk.connection.close()
    assert lost == [1]


def test_a_listening_connection_reads_but_does_not_begin_what_it_reads(talk):
    talk.on_request = lambda: (talk.connection.hold(), talk.connection.listen())
    talk.ask(b"a")
    talk.ask(b"b")
    assert talk.requests == [b"a"]
    talk.connection.release()
    assert talk.requests == [b"a", b"b"]


def test_a_paused_connection_reads_nothing_until_it_goes_on(talk):
    talk.connection.pause()
    talk.ask(b"a")
    assert talk.requests == []
    talk.connection.resume()
    talk.turn()
    assert talk.requests == [b"a"]


def test_nothing_more_is_answered_while_too_many_replies_are_not_taken(talk):
    talk.connection.owed = rules._BACKLOG + 1
    talk.ask(b"a")
    assert talk.requests == []
    assert not talk.connection.idle
    talk.connection.owed = rules._BACKLOG
    talk.connection.send_ready()  # some were taken
    talk.turn()
    assert talk.requests == [b"a"]


def test_others_have_their_turn_before_many_requests_are_answered(talk, monkeypatch):
    monkeypatch.setattr(rules, "_SLICE", 0.0)
    whole = wire.frame(b"z")
    talk.there.sendall(wire.frame(b"a") + wire.frame(b"b") + whole[:-1])
    talk.turn()
    assert talk.requests == [b"a"]
    begun = talk.connection.partial_since
    talk.turn()
    assert talk.requests == [b"a", b"b"]
    assert talk.connection.partial_since > begun  # it was not read meanwhile


def test_who_says_no_more_gets_the_answers_to_what_was_asked(talk):
    talk.there.sendall(wire.frame(b"a"))
    talk.there.shutdown(socket.SHUT_WR)
    talk.until(lambda: talk.requests)
    talk.turn()
    assert talk.closed == 0
    talk.give(0, b"A")
    assert talk.heard() == b"A"
    assert talk.closed == 1


def test_who_says_no_more_and_waits_for_nothing_is_let_go(talk):
    talk.there.shutdown(socket.SHUT_WR)
    talk.turn()
    assert talk.closed == 1
    talk.connection.close()
    assert talk.closed == 1
    talk.connection.send_ready()  # of a reply that comes too late: no error


def test_a_reply_that_was_sent_is_not_lost(talk):
    lost = []
    talk.on_request = lambda: talk.connection.if_lost(lambda: lost.append("lost"))
    talk.ask(b"a")
    talk.give(0, b"A")
    talk.connection.close()
    assert lost == []


def test_a_reply_of_which_a_part_was_not_taken_is_lost(talk):
    lost = []
    talk.on_request = lambda: talk.connection.if_lost(lambda: lost.append("lost"))
    talk.ask(b"a")
    talk.give(0, b"A" * 8_000_000)
    assert 0 < talk.connection.owed < 8_000_000
    assert not talk.connection.idle
    talk.connection.close()
    assert lost == ["lost"]


def test_a_long_reply_leaves_as_it_is_taken(talk):
    talk.ask(b"a", b"b")
    talk.connection.taken = 0.0
    talk.give(0, b"A" * 4_000_000)
    begun = talk.connection.taken
    assert begun > 0.0
    talk.connection.taken = 0.0
    talk.give(1, b"B")
    assert talk.connection.taken == 0.0  # nothing was
    heard = bytearray()

    def came():
        heard.extend(talk.received())
        return len(heard) == 4_000_001

    talk.until(came)
    assert bytes(heard[-2:]) == b"AB"
    assert talk.connection.taken > begun
    assert (talk.connection.owed, talk.connection.idle) == (0, True)
    talk.ask(b"c")
    talk.give(2, b"C")
    assert talk.received() == b"C"


def test_a_refusal_is_the_last_that_is_said(talk):
    before = _open()
    talk.on_request = talk.connection.hold
    talk.there.sendall(wire.frame(b"a"))
    _passing(talk, wire.frame(b"b"), 1)
    talk.until(lambda: talk.requests)
    talk.connection.listen()
    talk.until(lambda: _open() > before)
    talk.connection.refuse(Busy("too many"))
    assert _open() == before  # of what was not begun
    assert talk.closed == 0  # the first is answered yet
    talk.on_request = lambda: None
    talk.connection.release()
    talk.give(0, b"A")
    heard = talk.heard()
    assert heard.startswith(b"A")
    assert b"too many" in heard
    assert talk.requests == [b"a"]
    assert talk.closed == 1


def test_a_connection_rests_a_while_after_its_answer(talk):
    connection = talk.connection
    opened = connection.used
    assert not connection.rests(opened + NEVER_ASKED - 0.1)
    assert connection.rests(opened + NEVER_ASKED)
    talk.ask(b"a")
    assert not connection.rests(connection.used + NEVER_ASKED)  # it waits
    talk.give(0, b"A")
    assert not connection.rests(connection.used + RESTS - 0.1)
    assert connection.rests(connection.used + RESTS)
    connection.minded = True
    assert not connection.rests(connection.used + NEVER_ASKED)
    connection.minded = False
    connection.partial_since = 1.0
    assert not connection.rests(connection.used + NEVER_ASKED)


def test_a_queue_hangs_up_unless_it_is_asked_something_just_then(talk):
    talk.there.sendall(wire.frame(b"a"))
    assert not talk.connection.let_go()
    talk.turn()
    assert talk.requests == [b"a"]
    talk.give(0, b"A")
    assert talk.received() == b"A"
    assert talk.connection.let_go()
    assert talk.closed == 1
    assert talk.there.recv(1) == b""


# ---- all of them


@pytest.fixture
def several(loop):
    """Give a function that opens connections, of whom one likes."""
    gone = []
    every = connections.Connections(lambda: gone.append(True))
    opened = []

    def opens(asker=ASKER, used=None):
        talk = Talk(loop, asker)
        talk._close = every.remove
        talk.connection._on_close = every.remove
        if used is not None:
            talk.connection.used = used
        every.add(talk.connection)
        opened.append(talk)
        return talk

    opens.every, opens.gone = every, gone
    yield opens
    every.close()
    for talk in opened:
        talk.there.close()


def _many(several, most):
    several.every._limits._most = most
    several.every._limits._others = several.every._limits._each = most


def test_the_one_that_has_asked_nothing_for_longest_makes_room(several):
    _many(several, 3)
    first, second, third = several(used=2.0), several(used=1.0), several(used=3.0)
    newest = several(used=0.0)
    assert [talk.connection.closed for talk in (first, second, third, newest)] == [
        *(False, True, False, False),
    ]
    assert b"too many connections (3)" in second.heard()


def test_others_make_room_before_rq_itself_and_none_that_waits(several):
    _many(several, 2)
    own, other = several(used=1.0), several(OTHER, used=2.0)
    several()
    assert (own.connection.closed, other.connection.closed) == (False, True)
    own.ask(b"a")
    busy = several(used=9.0)
    several.every._limits._most = 3
    busy.ask(b"a")
    for talk in (own, busy):
        assert not talk.connection.closed


def test_the_newest_goes_if_all_others_wait(several):
    _many(several, 1)
    first = several()
    first.ask(b"a")
    newest = several()
    assert (first.connection.closed, newest.connection.closed) == (False, True)


def test_one_that_waits_for_a_lease_counts_only_among_those(several, monkeypatch):
    _many(several, 1)
    monkeypatch.setattr(connections, "MOST_WAITING", 1)
    first = several()
    with several.every.waiting(first.connection):
        second = several()
        assert not first.connection.closed
        with pytest.raises(Busy), several.every.waiting(second.connection):
            pass
    third = several(used=0.0)  # now there are two of one again, and one is too many
    assert [talk.connection.closed for talk in (first, second, third)].count(True) == 1


def test_one_of_another_user_counts_though_it_waits(several):
    _many(several, 1)
    other = several(OTHER)
    with several.every.waiting(other.connection):
        several(OTHER)
        assert other.connection.closed


def test_one_that_ended_while_it_waited_is_counted_off_once(several):
    _many(several, 1)
    first = several()
    with several.every.waiting(first.connection):
        first.connection.close()
    second = several()
    assert not second.connection.closed
    third = several()
    assert second.connection.closed or third.connection.closed


def test_who_sends_half_a_request_or_takes_no_reply_is_hung_up_on(several):
    half, deaf, fine = several(), several(), several()
    half.there.sendall(wire.frame(b"a")[:4])
    half.turn()
    deaf.ask(b"a")
    deaf.give(0, b"A" * 8_000_000)
    fine.ask(b"a")
    several.every.drop_silent()
    assert not half.connection.closed
    assert not deaf.connection.closed
    half.connection.partial_since -= connections.FRAME_SECONDS + 1
    deaf.connection.taken -= connections.TAKE_SECONDS + 1
    fine.connection.taken -= connections.TAKE_SECONDS + 1  # it is owed nothing yet
    several.every.drop_silent()
    assert half.connection.closed
    assert deaf.connection.closed
    assert not fine.connection.closed
    assert b"did not come in time" in half.heard()


def test_those_that_take_no_replies_are_hung_up_on_once_they_are_too_much(
    several, monkeypatch
):
    monkeypatch.setattr(connections, "UNTAKEN", 100)
    own, much, little, other = several(), several(), several(), several(OTHER)
    for talk, owed in ((own, 50), (much, 60), (little, 40), (other, 10)):
        talk.connection.owed = owed
    several.every.relieve()
    every = (other, much, own, little)
    assert [talk.connection.closed for talk in every] == [True, True, False, False]
    several.every.relieve()
    assert not own.connection.closed


def test_the_parent_is_missed_once_its_last_connection_has_ended(several):
    first, second, other = several(), several(), several()
    assert not several.every.minded
    first.connection.minded = second.connection.minded = True
    assert several.every.minded
    for talk in (first, other):
        talk.connection.close()
    assert not several.gone
    second.connection.close()
    assert several.gone == [True]


def test_all_are_idle_when_none_waits_or_is_about_to_ask(several):
    assert several.every.are_idle
    first = several(used=0.0)
    first.connection.opened = 0.0
    assert several.every.are_idle
    several()
    assert not several.every.are_idle


def test_all_are_let_go_but_for_one_that_asks(several):
    quiet, asks = several(), several()
    asks.there.sendall(wire.frame(b"a"))
    assert not several.every.let_go()
    assert not asks.connection.closed
    asks.turn()
    asks.give(0, b"A")
    assert several.every.let_go()
    assert quiet.connection.closed
    assert asks.connection.closed


def test_at_the_end_replies_that_are_there_are_sent(several):
    talk = several()
    talk.connection.minded = True
    talk.ask(b"a")
    talk.slots[0].data = b"A"
    several.every.close()
    assert talk.heard() == b"A"
    assert not several.gone


def test_one_that_is_not_served_is_told_why():
    here, there = socket.socketpair()
    connections_left = Busy("too many")
    rules.turn_away(here, connections_left)
    with there:
        text = there.recv(65536)
        assert b"too many" in text
        assert there.recv(1) == b""
        assert wire.failure(connections_left, False) == orjson.loads(text[13:])
    assert here.fileno() == -1
