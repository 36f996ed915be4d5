"""A message that fails is a line in systemd's journal, which nothing waits for."""

import socket

import pytest
from harness.spool import Owner

from rq.proc import journald
from rq.proc.journald import Journald
from rq.queues.delivery import failure_lines
from rq.words.states import Event, Role


@pytest.fixture
def journal(tmp_path):
    """The socket of a journal, and what takes lines to it."""
    path = str(tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(10)
        taker = Journald(path)
        yield sock, taker
        taker.close()


def fields_of(datagram):
    lines = datagram.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_failure_is_a_line_of_priority_err_and_a_success_is_none(tmp_path, journal):
    sock, taker = journal
    owner = Owner(tmp_path / "q")
    owner.open().figures.on_failure = failure_lines.teller(taker, "mail")
    for event, cause in ((Event.FINISH, "done"), (Event.FAIL, "exit")):
        msg_id = owner.submit()
        owner.spool.fire(msg_id, Event.CLAIM, Role.QUEUE)
        facts = {"cause": cause, "text": "no\nroute"}
        owner.spool.fire(msg_id, event, Role.QUEUE, facts=facts)
    owner.stop()
    fields = fields_of(sock.recv(65536))
    assert fields["PRIORITY"] == "3"
    assert (fields["RQ_QUEUE"], fields["RQ_CAUSE"]) == ("mail", "exit")
    assert fields["RQ_MSG_ID"] == msg_id
    assert fields["MESSAGE"].startswith(f"mail/{msg_id} failed (exit): no")
    sock.settimeout(0)
    with pytest.raises(BlockingIOError):
        sock.recv(1)


def test_a_queue_whose_messages_hold_addresses_names_the_cause_alone(journal):
    sock, taker = journal
    tell = failure_lines.teller(taker, "webhook")
    tell({"msg": "1", "cause": "exit", "attempt": 2, "text": "https://secret.example"})
    assert b"secret" not in sock.recv(65536)


def test_a_journal_that_is_full_or_gone_is_not_waited_for(tmp_path, journal):
    _, taker = journal
    for _ in range(5000):
        taker.say(journald.ERR, "x" * 900, {"queue": "mail"})
    gone = Journald(str(tmp_path / "nowhere"))
    gone.say(journald.ERR, "x", {})
    gone.close()


def test_only_a_service_of_systemd_has_a_journal():
    assert journald.of_service({}) is None
