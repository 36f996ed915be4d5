"""A broker whose disk fails or fills: one sentence, nothing lost, and it goes on by itself."""

import pytest
from harness.broker import broker_in
from harness.queues import SETTINGS, running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def broker(tmp_path, shim):
    with broker_in(tmp_path / "new" / "node", shim.env) as broker:
        yield broker


def test_a_stop_on_a_disk_that_fails_ends_with_one_sentence(broker, shim):
    client = broker.start()
    job_id = client.ask("ADDJOB", "q", "kept", 0)
    shim.set("fail.fdatasync")
    assert broker.stop() == 1
    said = broker.log.read_text()
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("rq broker: the journal cannot be written")
    shim.clear()
    client = broker.start()
    assert client.ask("GETJOB", "FROM", "q") == [[b"q", job_id.encode(), b"kept"]]


def test_the_directories_that_a_first_start_makes_are_durable(broker, shim, tmp_path):
    assert broker.start().ask("PING") == "PONG"
    synced = set(shim.calls("fsync"))
    for made in (broker.directory, broker.directory.parent, tmp_path):
        assert str(made) in synced


def test_who_waits_for_a_sync_that_fails_is_answered_when_the_disk_is_well(
    broker, shim
):
    client = broker.start()
    assert client.ask("PING") == "PONG"
    shim.set("fail.fdatasync")
    client.send("ADDJOB", "q", "late", 0)
    other = broker.client()
    wait_until(lambda: "answers wait for the disk" in broker.log.read_text())
    shim.clear()
    job_id = client.answer()
    assert other.ask("GETJOB", "FROM", "q") == [[b"q", job_id.encode(), b"late"]]


def test_a_message_whose_answer_has_not_left_is_given_back(tmp_path, shim):
    leased = {"num_workers": 0, "pull": {"seconds": 600}}
    with (
        running_queue(tmp_path, name="p", **leased) as queue,
        broker_in(tmp_path, shim.env, main=SETTINGS) as broker,
    ):
        client = broker.start()
        assert not client.ask("ADDJOB", "rq:p", "first", 0).startswith("ERR")
        shim.set("fail.fdatasync")
        broker.client().send("ADDJOB", "own", "late", 0)  # lets all answers wait
        wait_until(lambda: "answers wait for the disk" in broker.told())
        client.send("GETJOB", "FROM", "rq:p")
        client.send("ADDJOB", "rq:p", "second", 0)  # once the first is answered
        wait_until(lambda: len(messages(queue, "que") + messages(queue, "run")) == 2)
        assert len(queue.ok("leases")["leases"]) == 1
        client.close()
        wait_until(lambda: not queue.ok("leases")["leases"])
        wait_until(lambda: len(messages(queue, "que")) == 2)  # by the folders


def messages(queue, state):
    return queue.ok("list", {"state": state, "limit": 10})
