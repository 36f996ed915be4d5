"""Who may send to queues of RQ over the broker, get from them, and say what became of it."""

import pytest
from harness.broker import Simple, broker_in
from harness.queues import SETTINGS, running_queue

from rq.config import passwords

pytestmark = pytest.mark.process
PEOPLE = {
    "ann": {"role": "worker"},
    "eve": {"role": "worker", "sends": ["p"]},
    "bob": {"role": "worker", "queues": ["other"]},
    "pat": {"role": "producer"},
    "vic": {"role": "viewer"},
    "sam": {"role": "sender"},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A client of each user, and the queue."""
    path = tmp_path_factory.mktemp("root")
    stored = passwords.make("secret")
    users = {name: {"password": stored, **rights} for name, rights in PEOPLE.items()}
    main = {**SETTINGS, "basic_auth": {"users": users}}
    with (
        broker_in(path, main=main) as broker,
        running_queue(path, name="p", num_workers=0, pull={}) as queue,
    ):
        broker.start()
        clients = {name: broker.client() for name in PEOPLE}
        for name, client in clients.items():
            assert client.ask("AUTH", name, "secret") == "OK"
        yield clients, queue


@pytest.fixture
def clients(served):
    return served[0]


def add(client):
    job_id = client.ask("ADDJOB", "rq:p", "b", 0)
    assert isinstance(job_id, Simple), job_id
    return job_id.encode()


def test_who_has_got_a_message_says_what_became_of_it(clients):
    job_id = add(clients["pat"])
    assert clients["ann"].ask("GETJOB", "FROM", "rq:p") == [[b"rq:p", job_id, b"b"]]
    assert clients["eve"].ask("ACKJOB", job_id) == 0
    assert clients["eve"].ask("WORKING", job_id).startswith("NOJOB")
    assert clients["ann"].ask("NACK", job_id) == 1
    assert clients["eve"].ask("GETJOB", "FROM", "rq:p") == [[b"rq:p", job_id, b"b"]]
    assert clients["ann"].ask("ACKJOB", job_id) == 0
    assert clients["eve"].ask("ACKJOB", job_id) == 1


def test_its_story_names_who_has_worked_on_it(served):
    clients, queue = served
    job_id = add(clients["eve"])
    clients["ann"].ask("CLIENT", "SETNAME", "blue")
    assert clients["ann"].ask("GETJOB", "FROM", "rq:p")
    [row] = queue.ok("list", {"state": "run"})
    assert row["leased_by"] == "ann/blue"
    assert clients["ann"].ask("ACKJOB", job_id) == 1


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("ann", ("ADDJOB", "rq:p", "b", 0), "this user (ann) may not send to queue p"),
        ("vic", ("RQ.PUSH", "rq:p", "b"), "this user (vic) may not send to queue p"),
        (
            "vic",
            ("GETJOB", "NOHANG", "FROM", "rq:p"),
            "this user (vic) may not ask GETJOB",
        ),
        ("pat", ("RQ.POP", "rq:p"), "this user (pat) may not ask RQ.POP"),
        ("bob", ("QGET", "rq:p", "g"), "this user (bob) may not ask of queue p"),
        ("bob", ("QLEN", "rq:p"), "this user (bob) may not ask of queue p"),
    ],
)
def test_who_may_not_is_told_so(clients, name, words, told):
    assert clients[name].ask(*words).startswith(f"NOPERM {told}")


def test_a_viewer_looks(clients):
    job_id = add(clients["pat"])
    assert clients["vic"].ask("QLEN", "rq:p") == 1
    assert clients["vic"].ask("SHOW", job_id)[1] == job_id
    assert clients["bob"].ask("SHOW", job_id).startswith("NOPERM")


def test_a_key_is_its_user_s(clients):
    """As by HTTP and at the socket: a client cannot name another user beside its key."""
    body = '{"param1": "x", "_key": "mine", "_key_of": "pat"}'
    ids = [
        clients[name].ask("ADDJOB", "rq:p", body, 0).encode()
        for name in ("pat", "eve", "pat", "eve")
    ]
    assert ids[0] == ids[2] != ids[1] == ids[3]


def test_a_message_says_which_user_of_the_broker_has_sent_it(served):
    clients, queue = served
    before = {row["msg_id"] for row in queue.ok("list", {"state": "que"})}
    for name in ("pat", "eve"):
        add(clients[name])
        ids = {row["msg_id"] for row in queue.ok("list", {"state": "que"})} - before
        [new] = ids
        assert queue.get(new)["by"] == name
        before |= ids


# What tells nothing of others; all else is refused to a sender.
HARMLESS = {"AUTH", "HELLO", "QUIT", "PING", "ECHO", "TIME", "COMMAND"}
SENDS = {"ADDJOB", "RQ.PUSH", "QADD"}  # to rq: queues


def test_a_sender_sends_by_the_broker_and_learns_nothing_of_others(served):
    clients, queue = served
    sam, pat = clients["sam"], clients["pat"]
    job_id = add(sam)
    found = [queue.get(row["msg_id"]) for row in queue.ok("list", {"state": "que"})]
    assert "sam" in {message["by"] for message in found}
    theirs, plain = add(pat), pat.ask("ADDJOB", "q", "xyzzy", 0).encode()
    names = {row[0].decode().upper() for row in pat.ask("COMMAND")}
    words = ([], ["q"], ["rq:p"], [plain], [theirs], [job_id], ["FROM", "rq:p"])
    words += (["q", "1"], ["rq:p", "1"], ["q", "x", "0"], ["LIST"], ["INFO"], ["NODES"])
    for name in sorted(names - HARMLESS - SENDS):
        for args in words:
            if [name, args] == ["CLIENT", ["INFO"]]:
                continue  # of its own connection
            said = str(sam.ask(name, *args))
            refused = ("NOPERM", "wrong number", "NOAUTH", "-NOPERM")
            assert any(word in said for word in refused), (name, args, said)
    for name in SENDS:
        assert "NOPERM" in sam.ask(name, "q", "x", "0")
