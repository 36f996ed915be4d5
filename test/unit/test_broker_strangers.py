"""Clients that have not logged in hold places for a time, and no longer."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from rq.broker.clients.admission import Unauthenticated

PATIENCE = 10.0  # seconds


@dataclass
class Later:
    """What a loop is to call."""

    at: float
    call: object
    is_cancelled: bool = False

    def cancel(self):
        self.is_cancelled = True


@dataclass
class Loop:
    """A loop whose time passes when it is told."""

    now: float = 100.0
    calls: list[Later] = field(default_factory=list)

    def time(self):
        return self.now

    def call_later(self, wait, call):
        self.calls.append(Later(self.now + wait, call))
        return self.calls[-1]

    def pass_by(self, seconds):
        self.now += seconds
        due = [later for later in self.calls if later.at <= self.now]
        for later in due:
            self.calls.remove(later)
            if not later.is_cancelled:
                later.call()


@dataclass
class Client:
    number: int
    strangers: Unauthenticated
    principal: object = None
    waits: bool = False
    is_ended: bool = False

    def kill(self):
        self.is_ended = True
        self.strangers.lost(self)


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def strangers(loop):
    settings = SimpleNamespace(login_timeout=PATIENCE)
    return Unauthenticated(loop, lambda: settings, lambda: 1000)


def come(strangers, number):
    clients = [Client(at, strangers) for at in range(number)]
    for client in clients:
        strangers.note(client)
    return clients


def test_who_does_not_log_in_is_ended_and_who_does_is_not(loop, strangers):
    first, second, third = come(strangers, 3)
    second.principal = "ann"
    strangers.note(second)
    third.waits = True
    loop.pass_by(PATIENCE - 0.1)
    assert not first.is_ended
    loop.pass_by(0.2)
    assert [client.is_ended for client in (first, second, third)] == [
        True,
        False,
        False,
    ]
    third.waits = False
    loop.pass_by(PATIENCE + 0.1)
    assert third.is_ended
    assert len(strangers) == 0


def test_no_client_is_ended_once_the_broker_stops(loop, strangers):
    (client,) = come(strangers, 1)
    strangers.close()
    loop.pass_by(2 * PATIENCE)
    assert not client.is_ended


def test_who_has_been_there_longest_makes_room_but_for_one_whose_password_is_checked(
    loop, strangers
):
    clients = come(strangers, 249)
    assert strangers.make_room()
    assert not any(client.is_ended for client in clients)
    clients += [Client(249, strangers)]
    strangers.note(clients[249])
    clients[0].waits = True
    assert strangers.make_room()
    assert [client.number for client in clients if client.is_ended] == [1]
    clients += [Client(250, strangers)]
    strangers.note(clients[250])
    for client in clients:
        client.waits = True
    assert not strangers.make_room()
