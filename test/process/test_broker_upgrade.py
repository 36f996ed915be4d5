"""What a broker from before the cluster has left is read, and takes part in a cluster."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness.broker import broker_in
from harness.brokers import nodes_in
from harness.starting import environment
from harness.waiting import wait_until

pytestmark = pytest.mark.process
BEFORE = Path(__file__).with_name("before_cluster")  # see make.py there
TOLD = json.loads((BEFORE / "told.json").read_text())
STAYS = {"id", "queue", "state", "ctime", "delay", "retry", "body"}
STAYS |= {"nacks", "additional-deliveries"}


def put(directory: Path) -> None:
    """Put the directory in its place, and say that it is the same broker."""
    shutil.copytree(BEFORE / "node", directory)
    words = ["broker", "run", "--dir", str(directory), "--accept", "same"]
    command = [sys.executable, "-m", "rq.cli", *words]
    subprocess.run(command, check=True, env=environment({}))


@pytest.fixture
def client(tmp_path):
    put(tmp_path / "node")
    with broker_in(tmp_path / "node") as broker:
        yield broker.start()


def plain(value):
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return [plain(each) for each in value] if isinstance(value, list) else value


def comparable(words, answer):
    """Return what of an answer is the same at any time."""
    if words[0] == "SHOW" and answer is not None:
        pairs = dict(zip(answer[::2], answer[1::2], strict=True))
        return {name: pairs[name] for name in STAYS}
    if "PENDING" in words:
        # When it was handed out is the time of day less what has passed, both in whole
        # milliseconds: of two answers one may say a millisecond more.
        return [[*row[:2], row[2] // 1000, row[4]] for row in answer]
    return answer


@pytest.mark.parametrize("number", range(len(TOLD)))
def test_each_answer_is_as_before(number, told_now):
    words, before = TOLD[number]
    assert comparable(words, told_now[number]) == comparable(words, before)


@pytest.fixture(scope="module")
def told_now(tmp_path_factory):
    """What the present code answers to what the one before was asked."""
    directory = tmp_path_factory.mktemp("before") / "node"
    put(directory)
    with broker_in(directory) as broker:
        client = broker.start()
        return [plain(client.ask(*words)) for words, _ in TOLD]


def test_what_waited_waits_and_what_was_handed_out_is(client):
    def get(queue):
        answer = client.ask("GETJOB", "NOHANG", "COUNT", 9, "FROM", queue)
        return [row[2] for row in answer or []]

    assert get("waits") == [b"first", b"\xff\0 no text", b"last"]
    assert get("once") == [b"waits"]
    assert get("given") == get("late") == get("once") == get("done") == []
    assert get("large") == [b"L" * 3000]
    ((*_, nacks, _, _),) = client.ask("GETJOB", "WITHCOUNTERS", "FROM", "refused")
    assert nacks == 3
    bodies = [row[2] for row in client.ask("RQ.POP", "COUNT", 9, "mail")]
    assert bodies == [b"c", b"\xfe", b"d"]
    assert client.ask("QGET", "news", "readers")[1] == b"three"
    assert client.ask("QGET", "news", "readers") is None
    others = [client.ask("QGET", "news", "others")[1] for _ in range(3)]
    assert others == [b"one", b"two", b"three"]


def test_it_takes_part_in_a_cluster(tmp_path):
    put(tmp_path / "node0")
    with nodes_in(tmp_path, 3) as nodes:
        nodes.join()
        job_id = nodes.ask(0, "ADDJOB", "q", "new", 9000, "REPLICATE", 3)
        assert nodes.holders(job_id) == [0, 1, 2]
        bodies = [b"first", b"\xff\0 no text", b"last", b"waits", b"L" * 3000]
        got = {}
        wait_until(lambda: len(take(nodes, 1, got)) > len(bodies))
        assert sorted(got.values()) == sorted([*bodies, b"refused"])
        for each in [*got, job_id]:
            nodes.ask(1, "ACKJOB", each)
        wait_until(lambda: not any(nodes.holders(each) for each in [*got, job_id]))


def take(nodes, index, got):
    """Take what a node has of the queues, or gets; return all that was taken so far."""
    queues = "waits", "once", "large", "refused"
    for queue in queues:
        words = "GETJOB", "TIMEOUT", 100, "COUNT", 9, "FROM", queue
        got.update({row[1]: row[2] for row in nodes.ask(index, *words) or []})
    return got
