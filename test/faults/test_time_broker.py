"""A broker whose time of day jumps while it runs: delays and retries go on as they were."""

import pytest
from faults.clocks import DAY
from harness.broker import broker_in

pytestmark = pytest.mark.process


def test_a_time_of_day_that_jumps_changes_no_delay_and_no_order(tmp_path, clock):
    with broker_in(tmp_path / "node", clock.env) as broker:
        client = broker.start()
        later = client.ask("ADDJOB", "q", "later", 0, "DELAY", 600).encode()
        soon = client.ask("ADDJOB", "soon", "x", 0, "DELAY", 2).encode()
        event = client.ask("QADD", "e", 600, "x")
        message = client.ask("RQ.PUSH", "k", "x")[0]
        clock.set(DAY)
        assert client.ask("GETJOB", "NOHANG", "FROM", "q") is None
        ahead = client.ask("ADDJOB", "q", "ahead", 0).encode()
        clock.set(-2 * DAY)
        back = client.ask("ADDJOB", "q", "back", 0).encode()
        got = client.ask("GETJOB", "COUNT", 3, "FROM", "q")
        assert [each[1] for each in got] == [ahead, back]
        assert client.ask("GETJOB", "TIMEOUT", 15000, "FROM", "soon")[0][1] == soon
        assert client.ask("RQ.PUSH", "k", "y")[0] > message
        assert client.ask("QADD", "e", 600, "y") > event
        client = broker.restart()
        assert client.ask("GETJOB", "NOHANG", "FROM", "q") is None
        facts = client.ask("SHOW", later)
        left = facts[facts.index(b"next-requeue-within") + 1]
        assert 0 < left <= 600_000
        assert client.ask("QGET", "e", "g")[0] == event
        assert client.ask("RQ.POP", "COUNT", 2, "k")[0][1] == message
