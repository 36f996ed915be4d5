"""Who gets a message into a guarded queue, by each door that RQ has: one table.

A row of DOORS is a way by which messages come into a queue, how a test tries it, and for
each who may come that way the guarded queues that take it from them. Below the table the
doors are counted in the code: one that is added there and not here fails.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.broker import Refused, broker_in
from harness.checkout import CHECKOUT
from harness.leases import credentials, say
from harness.processes import acting_as, only_root, open_to_others
from harness.queues import SETTINGS, RunningQueue, running_queue, short
from harness.timers import past, timers
from harness.waiting import wait_until
from harness.web_server import Client, web_alone

from rq.access.roles import Role
from rq.broker.bridge import bridge
from rq.builtin.webhook import signing
from rq.config import notices, passwords
from rq.config.settings import RootConfig
from rq.errors import NotPermitted
from rq.layout import Root
from rq.message import guarded
from rq.message.guarded import Sender
from rq.message.message import from_request
from rq.relay import handover
from rq.relay.task import Task
from rq.rpc.lines.commands import COMMANDS
from rq.scripts.pipe import Verb
from rq.web import app, site

pytestmark = [pytest.mark.process, only_root]

ALL, NONE = frozenset(guarded.QUEUES), frozenset[str]()
PLANNED = frozenset({"cleaner", "flow", "spark-work"})
OTHER = 65533  # a user without a name, whom the mode of the directory lets in
GONE = "20260102.0304.05.006.7"
KEY = "0123abcd/1/0"  # as an owner delivers under
FIELD = re.compile(r"\{(\w+)[^}]*\}")


@dataclass
class House:
    """A root with all guarded queues, which run nothing, and every door open."""

    web: Client
    trusted: Client  # the web of a root that trusts the relays of this host
    tokens: Mapping[str, Mapping[str, str]]  # of each role
    to_broker: Mapping[str, Any]  # a client of each role
    script: RunningQueue  # runs param1
    leased: RunningQueue  # its workers are elsewhere
    guarded: dict[str, RunningQueue] = field(default_factory=dict)

    @property
    def root(self) -> Root:
        return self.script.root

    def counts(self, queue: str, *states: str) -> int:
        found = self.guarded[queue].ok("detail")["counts"]
        return sum(found[state] for state in states or found)


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    path, other = tmp_path_factory.mktemp("house"), tmp_path_factory.mktemp("trusting")
    stored = passwords.make("secret")
    users = {str(role): {"password": stored, "role": str(role)} for role in Role}
    broker_main = {**SETTINGS, "basic_auth": {"users": users}}
    with contextlib.ExitStack() as stack:
        web = stack.enter_context(web_alone(path))
        trusted = stack.enter_context(web_alone(other, trusted_relays=["127.0.0.1"]))
        asks = {str(role): credentials(Root(path), str(role), role) for role in Role}
        admin = credentials(Root(other), "admin", Role.ADMIN)
        asks["a trusted host"] = admin
        asks["a trusted host's proxy"] = {**admin, "X_Forwarded_For": "192.0.2.1"}
        queues = {
            name: stack.enter_context(running_queue(path, name=name, num_workers=0))
            for name in sorted(ALL)
        }
        script = stack.enter_context(running_queue(path, name="t"))
        leased = running_queue(path, name="p", num_workers=0, pull={})
        leased = stack.enter_context(leased)
        broker = stack.enter_context(broker_in(path, main=broker_main))
        broker.start()
        clients = {str(role): broker.client() for role in Role}
        for role, client in clients.items():
            assert client.ask("AUTH", role, "secret") == "OK"
        Root(path).config.write_text(json.dumps(SETTINGS | {"port": 3333}))
        for place in (Root(path).timers, Root(path).log):
            place.mkdir(exist_ok=True)
        open_to_others(path)
        yield House(web, trusted, asks, clients, script, leased, queues)


# ---- how each door is tried: True, it was taken; False, it was refused


def by_socket(word: str, **more: Any) -> Callable[..., bool]:
    def ask(house: House, who: str, queue: str) -> bool:
        place = house.guarded[queue]
        asked: dict[str, Any] = {"dest": queue, **more}
        if word in ("prepare_txn", "add_rows", "create_messages"):
            asked = {"messages": [{"dest": queue}]}
        if word in ("prepare_txn", "add_rows"):
            asked["txn"] = place.ok("open_txn", {})["txn"]
        if word == "take_copy":
            msg_id = house.script.send(param1="x", due=4e9)
            asked = {"message": {"dest": queue}, "queue": "t", "msg_id": msg_id, **more}
        with acting_as(OTHER if who == "another user" else 0, 0):
            return _is_taken(place.ask(word, asked))

    return ask


def _is_taken(reply: Any) -> bool:
    if reply[0] == "ok":
        return True
    may_not = (
        "takes messages from",
        "not from an owner",
        "may not ask",
        "no such message",
    )
    assert any(text in reply[1] for text in may_not), reply
    return False


def moved(house: House, who: str, queue: str) -> bool:
    """Its owner owes a copy then, and delivers it."""
    before, msg_id = house.counts(queue), house.script.send(param1="x", due=4e9)
    with acting_as(OTHER if who == "another user" else 0, 0):
        house.script.ok("move_message", {"msg_id": msg_id, "to": queue})
    return bool(wait_until(lambda: house.counts(queue) == before + 1))


def claimed(house: House, who: str, queue: str) -> bool:
    """It is said that an owner owes it."""
    asked = {"messages": [{"dest": queue, "_key": KEY}], "owed_by": "t"}
    return _is_taken(house.guarded[queue].ask("create_messages", asked))


def by_routes(house: House, who: str, queue: str) -> bool:
    """All addresses of the web that a producer may ask to send; with one answer."""
    said = {}
    for method, path in routes():
        url = FIELD.sub(lambda m: queue if m[1] == "name" else GONE, path)
        said[method, path] = house.web.ask(method, url, b"", **house.tokens[who])
    is_open = {key: answer.status != 403 for key, answer in said.items()}
    assert len(set(is_open.values())) == 1, is_open
    return all(is_open.values())


def routes() -> list[tuple[str, str]]:
    table = app.table(site.make(Root(Path("/nowhere")), RootConfig(), b"x" * 32))
    return [
        (method, path)
        for path in table.paths
        for method in table.methods(path)
        if table.right(path, method).role is Role.PRODUCER
        and method != "HEAD"
        and "flows" not in path  # a door of its own
    ]


def by_flow(house: House, who: str, queue: str) -> bool:
    """A flow, of which a message would go there."""
    body = {"messages": [{"name": "a", "dest": "t"}, {"name": "b", "dest": queue}]}
    kind = {"Content-Type": "application/json"}
    data, token = json.dumps(body).encode(), house.tokens[who]
    answer = house.web.ask("POST", "/api/v1/flows", data, **kind, **token)
    assert answer.status in (201, 403), answer
    return answer.status != 403


def by_dest(house: House, who: str, queue: str) -> bool:
    """A message of another queue, which would lead there."""
    said = set()
    for place in ("relay", "rq_router", "mail"):
        for dest in ("{}", "http://127.0.0.1:3333/q/{}", "q/x/q/{}?y"):
            form = {"mesg": json.dumps({"dest": dest.format(queue)})}
            path = f"/q/{place}/new_message"
            said.add(house.web.post(path, form, **house.tokens[who]).status != 403)
    [is_open] = said
    return is_open


def by_relay(**more: str) -> Callable[..., bool]:
    def hand_over(house: House, who: str, queue: str) -> bool:
        web = house.trusted if "trusted" in who else house.web
        form = {"mesg": json.dumps({"dest": queue, "_method": "prep", **more})}
        answer = web.post(f"/q/{queue}/new_message", form, **house.tokens[who])
        assert (answer.status == 403) == ("not from a relay" in answer.text), answer
        return answer.status != 403

    return hand_over


def here(**more: bool) -> Callable[..., bool]:
    def hand_over(house: House, who: str, queue: str) -> bool:
        fields = {"dest": f"http://localhost:3333/q/{queue}", **more}
        message = from_request(fields, GONE, 0.0, "x")
        task = Task(house.root, house.root.path, message, "x")
        with pytest.raises(NotPermitted, match="not from a relay"):
            handover.run(task, None)
        return False

    return hand_over


def by_webhook(house: House, who: str, queue: str) -> bool:
    """RQ's own user posts it, to an address that a producer gave."""
    sent = {"Content-Type": "application/json", **signing.headers("m_1", 0, b"{}", [])}
    paths = (f"/q/{queue}/new_message", f"/api/v1/queues/{queue}/messages")
    [is_open] = {
        house.web.ask("POST", path, b"{}", **sent).status != 403 for path in paths
    }
    return is_open


def by_lease(house: House, who: str, queue: str) -> bool:
    """The holder of a lease copies its message there, then hands it on."""
    house.leased.send(param1="x")
    [lease] = house.leased.ok("lease", {"count": 1, "by": "w"})["leases"]
    token, before = lease["token"], house.counts(queue)
    dup = {"token": token, "word": "done", "dups": [{"dest": queue}]}
    assert "not from scripts" in str(house.leased.ok("finish", {"finishes": [dup]}))
    forward = {"token": token, "word": "forward", "dest": queue}
    house.leased.ok("finish", {"finishes": [forward]})
    ended = house.leased.ended(short(lease["message"]["msg_id"]))
    assert "not from scripts" in str(ended)
    assert house.leased.ok("detail")["owed"] == 0
    return house.counts(queue) > before


def by_lease_over_http(house: House, who: str, queue: str) -> bool:
    ends = (
        {"token": "x", "word": "forward", "dest": queue},
        {"token": "x", "word": "done", "dups": [{"dest": queue}]},
    )
    kinds = set()
    for end in ends:
        said = say(
            house.web,
            "POST",
            "p/leases/finish",
            {"finishes": [end]},
            **house.tokens[who],
        )
        kinds.add(
            said.json["results"][0]["kind"] if said.status == 200 else said.status
        )
    [kind] = kinds
    return kind not in ("other_queue", 403)


def by_script(word: str) -> Callable[..., bool]:
    def run(house: House, who: str, queue: str) -> bool:
        say = f"echo {word.format(queue)} >&3"
        if word.startswith("dup"):
            say += "; read -r x <&4; echo $x; echo done >&3"
        before, ended = house.counts(queue), house.script.run(param1=say)
        text = str(ended) + house.script.output(ended["msg_id"])
        does = f"queue {queue} {guarded.QUEUES[queue].does}"
        assert does in text, text
        assert "not from scripts" in text, text
        return house.counts(queue) > before

    return run


def by_broker(*words: Any) -> Callable[..., bool]:
    def ask(house: House, who: str, queue: str) -> bool:
        said = house.to_broker[who].ask(words[0], f"rq:{queue}", *words[1:])
        assert not isinstance(said, Refused) or said.startswith("NOPERM"), said
        return not isinstance(said, Refused)

    return ask


def by_timer(house: House, who: str, queue: str) -> bool:
    timer = house.root.timers / f"{queue}.json"
    said = {"period": 86400, "msg": {"dest": queue, "param1": "x"}}
    timer.write_text(json.dumps(said))
    before, here = house.counts(queue), SimpleNamespace(root=house.root)
    with timers(here):
        wait_until(
            lambda: house.counts(queue) > before or past(here, queue).get("error")
        )
    timer.unlink()
    is_taken = house.counts(queue) > before
    assert is_taken or "not from timers" in past(here, queue)["error"]
    return is_taken


def by_new(house: House, who: str, queue: str) -> bool:
    """A folder that is renamed into new/."""
    place = house.root.queue(queue).path
    folder = place / f"made.{who}"
    folder.mkdir()
    (folder / "msg").write_text(json.dumps({"dest": queue, "param1": "x"}))
    for path in (folder, folder / "msg"):
        os.chown(path, OTHER if who == "another user" else 0, -1)
    waiting, ended = house.counts(queue, "que"), house.counts(queue, "que", "err")
    folder.rename(place / "new" / who.replace(" ", "-"))
    # What belongs to another user is copied, and in prep meanwhile.
    wait_until(lambda: house.counts(queue, "que", "err") == ended + 1, 60)
    return house.counts(queue, "que") > waiting


def by_notice(house: House, who: str, queue: str) -> bool:
    with pytest.raises(ValueError, match="takes no notices"):
        notices.checked_target(f"queue:{queue}")
    return False


# ---- the table


@dataclass(frozen=True)
class Door:
    """A way in."""

    attempt: Callable[[House, str, str], bool]
    opens: Mapping[str, frozenset[str]]  # who: the guarded queues that take it
    sender: Sender  # as whom the guard hears it


BY_ROLE = {
    "viewer": NONE,
    "producer": NONE,
    "worker": NONE,
    "operator": ALL,
    "admin": ALL,
}
RELAYING = {"admin": NONE, "a trusted host": ALL, "a trusted host's proxy": NONE}
# Who can open the socket, by the mode of the directory, operates.
AT_SOCKET = {"our own user": ALL, "another user": ALL}
AT_SOCKET_NONE = dict.fromkeys(AT_SOCKET, NONE)
SOCKET = ("create_message", "prep_message", "single_que", "create_messages")
SOCKET += ("prepare_txn", "add_rows")
# Commands that create, and are about a message or a transaction that was taken before.
FOLLOW = {"attach_message", "commit_message", "commit_txn", "open_txn"}
FOLLOW |= {"clone_message", "edit_message"}  # of one that is there, by operators
BROKER = {"ADDJOB": ("p", 0), "RQ.PUSH": ("p",), "QADD": (60, "p")}
SENDING = {Verb.FORWARD, Verb.DUP}
SILENT = {"run", "done", "relayed", "err", "resend", "later", "result"}

OPERATOR, PRODUCER, OWNER = Sender.OPERATOR, Sender.PRODUCER, Sender.OWNER
SCRIPT, RELAY, TIMER = Sender.SCRIPT, Sender.RELAY, Sender.TIMER
DOORS = {
    **{f"socket: {w}": Door(by_socket(w), AT_SOCKET, OPERATOR) for w in SOCKET},
    "socket: a script's copy": Door(by_socket("take_copy"), AT_SOCKET_NONE, SCRIPT),
    "socket: a relay's copy": Door(
        by_socket("take_copy", _key="relay/0123"), AT_SOCKET_NONE, RELAY
    ),
    "socket: what an owner owes": Door(moved, AT_SOCKET, OWNER),
    "socket: what no owner owes": Door(claimed, {"our own user": NONE}, OWNER),
    "new/": Door(by_new, {"our own user": ALL, "another user": NONE}, PRODUCER),
    "web: every address": Door(by_routes, BY_ROLE, PRODUCER),
    "web: a flow": Door(by_flow, BY_ROLE, PRODUCER),
    "web: dest": Door(by_dest, BY_ROLE, PRODUCER),
    "web: relay's key": Door(by_relay(_key="relay/0123"), RELAYING, RELAY),
    "web: relay's origin": Door(by_relay(orig_msg_id="x"), RELAYING, RELAY),
    "web: webhook": Door(by_webhook, {"our own user": NONE}, PRODUCER),
    "web: lease": Door(by_lease_over_http, dict.fromkeys(BY_ROLE, NONE), SCRIPT),
    "relay of this host": Door(here(), {"relay": NONE}, RELAY),
    "relay of this host, by HTTP": Door(
        here(force_remote=True), {"relay": NONE}, RELAY
    ),
    "lease": Door(by_lease, {"its holder": NONE}, SCRIPT),
    "script: forward": Door(by_script("forward {}"), {"a script": NONE}, SCRIPT),
    "script: dup": Door(by_script("dup 0-X-{}"), {"a script": NONE}, SCRIPT),
    **{
        f"broker: {word}": Door(by_broker(word, *more), BY_ROLE, PRODUCER)
        for word, more in BROKER.items()
    },
    "timer": Door(by_timer, {"a timer": PLANNED}, TIMER),
    "notice": Door(by_notice, {"a notice": NONE}, SCRIPT),
}
# The modules that ask an owner for a message, by the door that they are.
CODE = {
    "socket: create_message": {
        *(f"rq.cli.{m}" for m in ("ancestor", "edit", "send", "spark_demo")),
        *(f"rq.cli.{m}" for m in ("change", "relay", "verbs")),
        "rq.spark.queue_door",  # a job runs as RQ's user
        "rq.spark.sending",
        # Notices, to whom the settings name.
        *(f"rq.timers.{m}" for m in ("letter", "telling", "troubles")),
    },
    "socket: what an owner owes": {"rq.queues.delivery.delivery"},
    "web: a flow": {f"rq.builtin.flow.{m}" for m in ("deeds", "door", "sending")},
    "web: every address": {
        *(f"rq.web.{m}" for m in ("messages", "attachments", "pages.forms")),
        *(f"rq.web.{m}" for m in ("pages.relay", "resumable_uploads")),
        *(
            f"rq.web.api.{m}"
            for m in ("messages", "actions", "attachments", "transactions")
        ),
    },
    "relay of this host": {"rq.relay.handover"},
    "script: dup": {"rq.queues.delivery.copies"},
    "broker: ADDJOB": {"rq.broker.bridge.queues"},
    "timer": {"rq.timers.sending"},
    "notice": {"rq.builtin.notice.__main__"},
}


@pytest.mark.parametrize("queue", sorted(ALL))
@pytest.mark.parametrize("door", DOORS)
def test_a_guarded_queue_opens_at_each_door_to_whom_the_table_says(house, door, queue):
    row = DOORS[door]
    for who, queues in row.opens.items():
        assert row.attempt(house, who, queue) == (queue in queues), who


# ---- no door is missing


def test_the_table_has_each_way_to_ask_for_a_message():
    creating = {word for word, command in COMMANDS.items() if command.creates}
    assert creating == {*SOCKET, "take_copy"} | FOLLOW
    bridged = {**bridge._NAMED, **bridge._OF_JOBS}
    sending = {w.decode() for w, row in bridged.items() if row.role is Role.PRODUCER}
    assert sending == set(BROKER)
    assert set(Verb) == SENDING | SILENT
    assert set(Sender) == {row.sender for row in DOORS.values()}
    assert len(routes()) > 10


def test_the_table_has_each_module_that_asks_an_owner_for_a_message():
    words = {word for word, command in COMMANDS.items() if command.creates}
    words |= {"move_message"}
    # Its own, the tables of commands and of actions, and what does these.
    inside = ("rq.queues.control.", "rq.queues.bulk.", "rq.rpc.lines.", "rq.message.")
    asking = {
        name
        for path in (CHECKOUT / "rq").rglob("*.py")
        if not (name := module(path)).startswith(inside)
        if asks_with(words, path.read_text())
    }
    assert asking == set().union(*CODE.values())
    assert CODE.keys() <= DOORS.keys()


def asks_with(words: set[str], code: str) -> bool:
    """Return whether one of the words, or the table of actions, is in the code."""
    if not any(word in code for word in (*words, "ACTIONS")):
        return False  # most of RQ: it need not be parsed
    return any(
        (isinstance(node, ast.Constant) and node.value in words)
        or (isinstance(node, ast.Name) and node.id == "ACTIONS")
        for node in ast.walk(ast.parse(code))
    )


def module(path: Path) -> str:
    return ".".join(path.relative_to(CHECKOUT).with_suffix("").parts)


def test_what_is_no_guarded_queue_is_open_to_all_who_send():
    for sender in Sender:
        guarded.check("rq_router", sender)
        guarded.check("mail", sender)
