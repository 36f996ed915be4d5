"""What may be read of a parked queue without starting it: each command, verb and page."""

import asyncio
import re
import time

import pytest
from harness import cli, documents
from harness.waiting import wait_until
from harness.web_server import served

from rq.builtin.flow import door, look
from rq.config import parked
from rq.flow.plan import parse
from rq.rpc import client
from rq.rpc.lines import parked_answers
from rq.rpc.lines.commands import COMMANDS, Parked
from rq.rpc.lines.owners import Owners
from rq.timers import sending
from rq.timers.outcomes import Outcomes

pytestmark = pytest.mark.process
LONG = 60.0
SAYS = """#!/bin/sh
case "$RQ_PARAM1" in
stays) exec sleep 60 ;;
bad) echo "err bad" >&3 ;;
*) echo "done ok" >&3 ;;
esac
"""
FILE = {"ping", "status", "detail", "figures", "num_messages", "leases", "restored"}
NOTHING = {"owed"}
FOLDER = {"get_message_state", "get_states", "get_ends"}
STARTS = {
    *("kinds", "uptime", "config", "get_message", "get_attempts"),
    *("get_message_status", "ends", "messages", "list"),
    *("await_end", "show_txn", "list_txns", "show_bulk", "list_bulks", "owes"),
    "notices",
}
VERBS = [
    *("status", "ls", "ls q", "ls --count", "check", "owed", "doctor", "worker ls"),
    *("find needle", "runs", "failures", "flow ls"),
]
PAGES = [
    *("/", "/?find=q", "/?sort=failed", "/metrics", "/relay", "/api/v1/queues"),
    *("/search?words=needle", "/runs", "/failures", "/flows"),
    *("/api/v1/search?words=needle", "/api/v1/flows"),
]
OF_PROCESS = {"pid", "seq", "uptime"}  # what `detail` tells of a process


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("reads") / "root", index=True) as web:
        web.daemon.create("q", park="1s")
        yield web


@pytest.fixture(scope="module")
def messages(web):
    """A message that has ended and one that waits, in a queue that is parked; the index
    has them."""
    socket = web.daemon.root.queue("q").socket
    with client.Connection(socket) as line:
        fields = [{"param1": "needle"}, {"due": time.time() + 86400}]
        ids = [
            client.demanded(line.ask("create_message", {"dest": "q", **each}))
            for each in fields
        ]
    until_parked(web)
    wait_until(lambda: web.get("/api/v1/search?words=needle").json["messages"], LONG)
    return [full_id.rpartition("/")[2] for full_id in ids]


@pytest.fixture(scope="module")
def flow(web, messages):
    """The id of a flow that has ended; its queue and that of its messages are parked."""
    root = web.daemon.root
    script = root.path / "sends"
    script.write_text('#!/bin/sh\nexec "$RQ_PYTHON" -I -m rq.builtin.flow\n')
    script.chmod(0o755)
    web.daemon.create("flow", park="1s", script=str(script))
    web.daemon.until_up("flow")
    plan = parse([{"name": "first", "dest": "q"}, {"name": "last", "dest": "q"}])
    msg_id = door.send(root, plan, {}).msg_id
    wait_until(lambda: look.end_of(root, msg_id)["state"] == "done", LONG)
    until_parked(web, "flow")
    until_parked(web)
    return msg_id


@pytest.fixture
def left(web, messages):
    """How the file looks that the queue has left, which is parked."""
    until_parked(web)
    return stamp(web)


def until_parked(web, name="q"):
    wait_until(lambda: web.daemon.child(name)["state"] == "PARKED", LONG)


def is_as_it_was(web, left, name="q"):
    return web.daemon.child(name)["state"] == "PARKED" and stamp(web, name) == left


def stamp(web, name="q"):
    return parked.stamp(web.daemon.root.queue(name).parked)


def asked(web, command, arg=b""):
    async def ask():
        owners = Owners(web.daemon.root)
        try:
            return await owners.ask("q", command, arg)
        finally:
            owners.close()

    return asyncio.run(ask())


def test_of_each_command_that_reads_it_is_said_what_answers():
    every = {word: row.parked for word, row in COMMANDS.items() if row.looks}
    assert every == {
        **dict.fromkeys(FILE, Parked.FILE),
        **dict.fromkeys(NOTHING, Parked.NOTHING),
        **dict.fromkeys(FOLDER, Parked.FOLDER),
        **dict.fromkeys(STARTS, Parked.PROCESS),
    }
    others = {row.parked for row in COMMANDS.values() if not row.looks}
    assert others == {Parked.PROCESS}


def test_the_reference_names_them():
    words = documents.section(documents.REFERENCE / "socket.md", "Commands")
    said = words.partition(" need not start for ")[2].partition(":")[0]
    assert set(re.findall(r"`(\w+)`", said)) == FILE | NOTHING | FOLDER


def test_it_is_read_as_a_process_would_answer_and_starts_nothing(web, messages, left):
    words = sorted(FILE | NOTHING)
    before = {word: asked(web, word) for word in words}
    assert is_as_it_was(web, left)
    with client.Connection(web.daemon.root.queue("q").socket) as line:
        after = {word: line.ask(word) for word in words}
    about = before.pop("detail")[1], after.pop("detail")[1]
    differ = {key for key in about[0] if about[0][key] != about[1][key]}
    assert differ <= OF_PROCESS
    assert before["figures"][1]["accepted"] >= 2  # what monitors count goes on
    assert after == before


def test_where_a_message_is_is_read_from_its_folder(web, messages, left):
    ended, waits = messages
    assert asked(web, "get_message_state", {"msg_id": ended}) == ["ok", "done"]
    assert asked(web, "get_message_state", {"msg_id": waits}) == ["ok", "que"]
    gone = asked(web, "get_message_state", {"msg_id": "20260102.0304.05.006.7"})
    assert gone[:2] == ["fail", "msg not found"]
    assert is_as_it_was(web, left)


@pytest.mark.slow
def test_no_verb_that_reads_all_queues_starts_one(web, messages, left):
    for words in VERBS:
        cli.run("rq.cli", *words.split(), root=web.daemon.root.path)
        assert is_as_it_was(web, left), words


def test_no_page_that_shows_all_queues_starts_one(web, messages, left):
    for path in [*PAGES, f"/?find={messages[0]}"]:
        assert web.get(path).status in {200, 303}, path
        assert is_as_it_was(web, left), path


@pytest.mark.slow
def test_no_look_at_a_flow_starts_its_queues(web, messages, flow):
    root, outcomes = web.daemon.root, Outcomes(web.daemon.root, None, asyncio.Event())
    looks = [
        lambda: cli.run("rq.cli", "flow", "ls", root=root.path),
        lambda: cli.run("rq.cli", "flow", "show", flow, root=root.path),
        lambda: web.get("/flows"),
        lambda: web.get(f"/flow/{flow}"),
        lambda: web.get(f"/api/v1/flows/{flow}"),
        lambda: asyncio.run(outcomes._ends("flow", [flow])),  # what timers do
        lambda: asyncio.run(sending._state(root, "flow", flow)),
        lambda: asyncio.run(sending._state(root, "q", messages[0])),
        lambda: asyncio.run(sending._skipped(root, "flow", flow)),
    ]
    names = ("flow", "q")
    before = {name: stamp(web, name) for name in names}
    for number, see in enumerate(looks):
        see()
        assert all(is_as_it_was(web, before[each], each) for each in names), number
    assert set(look.flow_of(root, flow).states.values()) == {"done"}


@pytest.mark.slow
def test_messages_are_read_as_a_process_would_answer(web):
    script = web.daemon.root.path / "says"
    script.write_text(SAYS)
    script.chmod(0o755)
    web.daemon.create("r", park="1s", script=str(script))
    ids = every_kind(web)
    until_parked(web, "r")
    left = stamp(web, "r")
    asks = [
        ("get_states", {"msg_ids": ids, "deep": deep, "follow": follow})
        for deep in (False, True)
        for follow in (False, True)
    ]
    asks.append(("get_ends", {"msg_ids": ids}))
    root = web.daemon.root
    before = [parked_answers.answer(root, "r", *each) for each in asks]
    assert is_as_it_was(web, left, "r")
    with client.Connection(root.queue("r").socket) as line:
        assert [line.ask(*each) for each in asks] == before
    states = [before[3][1][each].partition(" ")[0] for each in ids]
    assert states == ["done", "que", "held", "err", "goes_on", "cancelled", "gone"]
    assert parked_answers.answer(root, "r", *asks[0]) is None  # it is awake


def every_kind(web):
    """Return the ids of messages that stand in each way in which they may be parked."""
    with client.Connection(web.daemon.root.queue("r").socket) as line:

        def ask(command, **request):
            return client.demanded(line.ask(command, request))

        def sent(**fields):
            return ask("create_message", dest="r", **fields).rpartition("/")[2]

        later = time.time() + 86400
        ended = sent(param1="stays")
        waits, held = sent(due=later), sent(due=later)
        ask("hold_message", msg_id=held)
        wait_until(lambda: ask("get_message_state", msg_id=ended) == "run", LONG)
        ask("cancel_message", msg_id=ended)
        done, bad, edited = sent(), sent(param1="bad"), sent(param1="bad")
        wait_until(lambda: ask("get_message_state", msg_id=edited) == "err", LONG)
        ask("edit_message", msg_id=edited, changes={"param1": "", "due": later})
    return [done, waits, held, bad, edited, ended, "20260102.0304.05.006.7"]


def test_where_a_message_is_is_not_read_from_a_queue_that_is_awake(web, messages, left):
    root, request = web.daemon.root, {"msg_id": messages[1]}
    assert parked_answers.answer(root, "q", "get_message_state", request) is not None
    with client.Connection(root.queue("q").socket) as line:
        assert line.ask("get_message_state", request) == ["ok", "que"]
    assert parked_answers.answer(root, "q", "get_message_state", request) is None


def test_what_only_a_process_answers_starts_it(web, messages, left):
    view = asked(web, "get_message", {"msg_id": messages[1]})[1]
    assert view["state"] == "que"
    assert web.daemon.child("q")["state"] == "UP"
