"""Every call that a broker makes fails once, with each error that a machine can give: each
command is answered or the broker has ended with a sentence, and what was answered holds."""

import errno

import pytest
from harness.broker import Refused, broker_in
from harness.failing_calls import ERRORS, chosen, failed, nth
from harness.waiting import wait_until

pytestmark = pytest.mark.process

SMALL = {"TEST_SNAPSHOT": "20000", "TEST_SEGMENT": "16384", "TEST_LARGE": "9000"}
BODY = "x" * 3000
REFUSALS = ("MISCONF Errors writing", "ERR a body cannot be read: ")
LARGE = "l" * 10_000  # it gets a file


class Life:
    """A short life of a broker, in which nothing need succeed."""

    def __init__(self, broker):
        self.broker = broker
        self.stay, self.gone = set(), set()

    def tell(self):
        """Serve a client until it has said all, or the broker has ended."""
        self.broker.begin()
        wait_until(lambda: self.is_over() or self.answers())
        for n in range(30):
            if (body := self.added(f"{n}")) is not None:
                self.stay.add(body)
            long = LARGE if n % 5 == 0 else BODY
            if (body := self.added(f"{n}" + long)) is not None:
                self.stay.add(body)
                self.end(body)

    def is_over(self):
        return self.broker.process.poll() is not None

    def answers(self):
        try:
            self.client = self.broker.client()
            return self.client.ask("PING") == "PONG"
        except (EOFError, ConnectionError):
            return False

    def ask(self, *words):
        """Return an answer; a refusal is a sentence, and silence means its end."""
        try:
            answer = self.client.ask(*words)
        except (EOFError, ConnectionError, AttributeError):
            wait_until(self.is_over)
            return None
        assert not isinstance(answer, Refused) or answer.startswith(REFUSALS), answer
        return None if isinstance(answer, Refused) else answer

    def added(self, body):
        return body if self.ask("ADDJOB", "q", body, 0, "RETRY", 1000) else None

    def end(self, body):
        """Let the first job be done, or that which lies there."""
        for _, job_id, got in self.ask("GETJOB", "NOHANG", "FROM", "q") or ():
            if self.ask("ACKJOB", job_id) == 1:
                self.stay.discard(got.decode())
                self.gone.add(got.decode())
            else:
                self.stay.discard(got.decode())  # nobody can say

    def prove(self):
        log = self.broker.log.read_text()
        assert "Traceback" not in log, log
        self.broker.env = dict(SMALL)
        client = self.broker.start()
        _, ids = client.ask("JSCAN", "0", "COUNT", 1000, "BUSYLOOP")
        shown = [client.ask("SHOW", job_id) for job_id in ids]
        bodies = {dict(zip(s[::2], s[1::2], strict=True))[b"body"] for s in shown}
        there = {body.decode() for body in bodies}
        assert self.stay <= there, f"lost: {self.stay - there}"
        assert not self.gone & there, f"back: {self.gone & there}"
        assert self.broker.stop() == 0


def run(path, library, first, code, number=1):
    """Let a broker live while calls fail from `first` on; prove; return the calls."""
    path.mkdir()
    env = nth(library, f"{path}/node", path / "calls", first, code, number)
    with broker_in(path / "node", {**SMALL, **env}) as broker:
        life = Life(broker)
        life.tell()
        if not life.is_over():
            assert broker.stop() in (0, 1)
        life.prove()
    return (path / "calls").read_text().splitlines()


@pytest.fixture(scope="module")
def calls(library, tmp_path_factory):
    found = run(tmp_path_factory.mktemp("count") / "root", library, 0, 0)
    assert len(found) > 100
    return found


def test_each_call_may_fail_once_and_nothing_answered_is_lost(library, calls, tmp_path):
    wrong = []
    for number, code in chosen(calls):
        root = tmp_path / f"n{number}"
        try:
            run(root, library, number, code)
        except AssertionError as error:
            which = failed((root / "calls").read_text().splitlines(), number)
            wrong.append(f"{which} with {errno.errorcode[code]}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_many_calls_in_a_row_may_fail(library, calls, tmp_path, code):
    first = len(calls) * (ERRORS.index(code) + 1) // (len(ERRORS) + 1)
    run(tmp_path / "root", library, first, code, 12)
