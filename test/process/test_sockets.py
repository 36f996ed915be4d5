"""Who may ask what over the Unix sockets: the queue's, the supervisor's, the timers'."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.checkout import CHECKOUT
from harness.processes import acting_as, open_to_others
from harness.queues import RunningQueue, running_queue, short
from harness.sockets import old_ask
from harness.supervisor import Daemon, daemon_on
from harness.waiting import wait_until

from rq.access.roles import Role
from rq.cli import owner
from rq.config import secrets
from rq.proc import peers
from rq.rpc import client
from rq.rpc.lines.commands import COMMANDS
from rq.spool import offline
from rq.supervisor.commands import Commands
from rq.timers.commands import COMMANDS as TIMERS
from rq.words.states import State

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="it takes root to be two users -> sudo ./test/run_tests.sh process",
)
STRANGER = 4321
GROUP = grp.getgrgid(1).gr_name  # of whom this test's admins are members

ROLES = {
    "queue": {
        Role.VIEWER: "kinds owes ping uptime config status detail get_message get_message_state "
        "get_message_status num_messages messages list owed show_txn list_txns "
        "restored await_end leases show_bulk list_bulks get_attempts get_ends get_states ends figures notices",
        Role.PRODUCER: "wake create_message create_messages prep_message single_que "
        "attach_message "
        "delete_attach_message commit_message take_copy open_txn prepare_txn "
        "add_rows commit_txn abort_txn",
        Role.WORKER: "lease start renew progress log file finish release",
        Role.OPERATOR: "seal expire check clone_message delete_message destroy_message "
        "cancel_message cancel_batch retry_message run_message set_message hold_message "
        "release_message release_after ack_message unack_message reopen_message move_message edit_message ack_errs resolve_owed bulk "
        "cancel_bulk test_notice drop_rows",
        Role.ADMIN: "shutdown mind restore",
    },
    "supervisor": {
        Role.VIEWER: "ping uptime version environment queues status",
        Role.PRODUCER: "wake_queue",
        Role.OPERATOR: "up_queue down_queue pause_queue resume_queue restart_queue",
        Role.ADMIN: "create_queue change_queue delete_queue define_queue undefine_queue broker "
        "shutdown",
    },
    "timers": {
        Role.VIEWER: "get_timers get_status status timer next misses",
        Role.PRODUCER: "wake",
        Role.OPERATOR: "run accept ack pause resume",
    },
}
OWN = {"owes", "ends", "mind", "take_copy", "define_queue", "undefine_queue"}
OTHERS = {"queue": Role.OPERATOR, "supervisor": Role.PRODUCER, "timers": Role.PRODUCER}


def table(kind: str) -> dict[str, Role]:
    return {word: role for role, words in ROLES[kind].items() for word in words.split()}


def test_every_command_of_every_socket_names_the_role_that_it_takes():
    assert {word: one.role for word, one in COMMANDS.items()} == table("queue")
    supervisor = Commands.COMMANDS
    assert {word: one.role for word, one in supervisor.items()} == table("supervisor")
    assert {word: role for word, (_, role) in TIMERS.items()} == table("timers")
    own = [word for word, one in COMMANDS.items() if one.own]
    assert {*own, *(word for word, one in supervisor.items() if one.own)} == OWN


@pytest.fixture
def site(tmp_path):
    with open_site(tmp_path) as site:
        yield site


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    """A site for tests that only ask."""
    with open_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@contextlib.contextmanager
def open_site(path: Path) -> Iterator[Daemon]:
    """Give a supervisor with a queue, whose sockets the group 0 can open."""
    open_to_others(path)
    with daemon_on(path / "root") as daemon:
        settings = json.loads(daemon.root.config.read_text())
        settings["admin_group"] = GROUP
        daemon.root.config.write_text(json.dumps(settings))
        daemon.start()
        daemon.create("mail")
        daemon.until_up("timers")
        yield daemon


def asked(site: Daemon, kind: str, command: str, arg: object = b"") -> object:
    if kind == "timers":
        return client.ask_timers(site.root.timers_socket, command, timeout=20)
    queue = site.root.queue("mail").socket
    path = queue if kind == "queue" else site.root.supervisor_socket
    return old_ask(path, command, arg, timeout=20)


def is_refused(reply: object, command: str) -> bool:
    return f"may not ask {command}" in str(reply)


@pytest.mark.parametrize("kind", ROLES)
def test_others_of_the_sockets_group_are_refused_what_their_role_does_not_cover(
    lasting, kind
):
    for command, role in table(kind).items():
        with acting_as(STRANGER, 0):
            reply = asked(lasting, kind, command)
        refused = command in OWN or not OTHERS[kind].covers(role)
        assert is_refused(reply, command) is refused, reply
    assert lasting.is_up("mail")
    assert lasting.ask("ping") == ["pong"]


@pytest.mark.parametrize(("gid", "groups"), [(1, []), (0, [7, 1])])
def test_members_of_the_admin_group_may_ask_all_but_what_is_rqs_own(site, gid, groups):
    path = site.root.supervisor_socket
    for place in (site.root.path, site.root.config_dir, path):
        shutil.chown(place, 0, gid)
    with acting_as(STRANGER, gid, groups):
        for command in ("define_queue", "undefine_queue"):
            assert is_refused(asked(site, "supervisor", command, "mail"), command)
        assert asked(site, "supervisor", "pause_queue", "mail") == ["ok", "mail"]
        assert asked(site, "supervisor", "shutdown") == ["ok"]
    assert site.process.wait(60) == 0


def test_members_of_other_groups_are_no_admins(lasting):
    with acting_as(STRANGER, 0, [7, 8]):
        reply = asked(lasting, "supervisor", "pause_queue", "mail")
    assert is_refused(reply, "pause_queue")


@pytest.mark.slow
def test_more_groups_than_python_reads_of_the_kernel_are_looked_up_by_name(lasting):
    with acting_as(STRANGER, 0, [*range(100, 500), 1]):
        reply = asked(lasting, "supervisor", "pause_queue", "mail")
    assert is_refused(reply, "pause_queue"), "4321 has no name, so no groups either"
    assert lasting.ask("ping") == ["pong"]


def test_an_admin_makes_queues_only_where_allow_new_queue_says_so(site):
    wanted = {"name": "made", "script": str(site.script)}
    with acting_as(STRANGER, 0, [1]):
        reply = asked(site, "supervisor", "create_queue", wanted)
    text = "queues cannot be made here, nor changed: allow_new_queue is not true"
    assert reply == ["fail", text]
    assert not site.root.queue("made").path.exists()
    settings = json.loads(site.root.config.read_text())
    site.root.config.write_text(json.dumps({**settings, "allow_new_queue": True}))
    site.process.send_signal(1)  # SIGHUP

    def is_made() -> bool:
        with acting_as(STRANGER, 0, [1]):
            return asked(site, "supervisor", "create_queue", wanted)[0] == "success"

    wait_until(is_made)


def test_a_group_that_does_not_exist_has_no_members(tmp_path):
    open_to_others(tmp_path)
    queue = RunningQueue(tmp_path / "root", "t", "obey")
    settings = json.loads(queue.root.config.read_text())
    queue.root.config.write_text(json.dumps({**settings, "admin_group": "nosuch"}))
    queue.start()
    try:
        with acting_as(STRANGER, 0, [1]):
            assert "may not ask shutdown" in queue.refused("shutdown")
        assert "there is no group 'nosuch'" in queue.log()
        queue.close()
    finally:
        queue.kill()


# ---- whose word is believed


def cancelled(queue: RunningQueue, who: object, uid: int) -> str:
    """Return the status of a message that somebody has cancelled."""
    msg_id = queue.send(param1="sleep 60")
    queue.until(msg_id, "run")
    with acting_as(uid, 0):
        queue.ok("cancel_message", {"msg_id": msg_id, "who": who})
    return str(queue.ended(msg_id)["status"])


def test_who_did_it_is_believed_from_rqs_own_user_and_root_only(tmp_path):
    open_to_others(tmp_path)
    with running_queue(tmp_path / "root") as queue:
        assert cancelled(queue, "Ada", 0) == "err - cancelled by Ada"
        name = pwd.getpwuid(1).pw_name
        assert cancelled(queue, "root", 1) == f"err - cancelled by {name}"
        assert cancelled(queue, "Ada", STRANGER) == f"err - cancelled by uid:{STRANGER}"


def test_one_user_alone_may_ask_everything_as_before(tmp_path):
    open_to_others(tmp_path)
    queue = RunningQueue(tmp_path / "root", "t", "obey")
    for place in [tmp_path / "root", *(tmp_path / "root").rglob("*")]:
        if not place.is_symlink():
            shutil.chown(place, 1, 1)
    try:
        queue.start(user="1")
        for uid in (1, 0):
            with acting_as(uid, uid):
                msg_id = short(queue.ok("create_message", {"dest": "t", "due": 4e9}))
                assert queue.ok("delete_message", {"msg_id": msg_id})
        with acting_as(1, 1):
            assert queue.ask("shutdown") == ["ok"]
        assert queue.process.wait(60) == 0
    finally:
        queue.kill()


# ---- users that the kernel cannot name

IN_A_NAMESPACE = """
import os, sys
from pathlib import Path
from rq.proc import peers
from rq.access import sockets
import socket
ours, theirs = socket.socketpair()
print(peers.is_nameless(65534), peers.is_nameless(0))
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
listening.listen()
print("ready", flush=True)
line, _ = listening.accept()
try:
    sockets.Policy(sockets.QUEUE_OTHERS, None).asker(line)
except Exception as error:
    print(error)
"""


def test_secrets_of_a_config_are_for_admins(tmp_path):
    secret = {"API_TOKEN": "sesame", "LANG": "C"}
    hook = "https://me:pw@hooks.example/T00/sesame"
    settings = {"exec_prefix": "env KEY=sesame", "on_err": [hook, "ops@x.example"]}
    with running_queue(tmp_path, env_vars=secret, **settings) as queue:
        open_to_others(queue.root.path)
        socket = queue.dir.socket
        assert client.ask(socket, "config")[1]["env_vars"] == secret
        assert hook in str(client.ask(socket, "notices"))
        with acting_as(STRANGER, 0):
            shown = client.ask(socket, "config")[1]
            told = str(client.ask(socket, "notices"))
    assert shown["env_vars"] == {"API_TOKEN": "(hidden)", "LANG": "(hidden)"}
    assert shown["exec_prefix"] == "(hidden)"
    for text in (told, str(shown["on_err"])):
        assert "https://hooks.example/(hidden)" in text
        assert "ops@x.example" in text
    assert "sesame" not in str(shown) + told


def of_every_look(socket: Path, msg_id: str) -> str:
    """Return what all commands that look at something answer."""
    answers = []
    for word in table("queue"):
        if COMMANDS[word].role is Role.VIEWER and word not in OWN | {
            "kinds",
            "await_end",
        }:
            for state in ("que", "err", "done"):
                about = {"msg_id": msg_id, "state": state}
                answers.append(str(old_ask(socket, word, about, timeout=20)))
    return "".join(answers)


def test_addresses_in_messages_are_for_admins(tmp_path):
    hook = "https://me:pw@hooks.example/T00/sesame"
    story = json.dumps({"post_run_webhook": [hook], "id": "x"})
    says = f"echo 'err no answer of {hook}' >&3; exit 1"
    fields = {"param1": says, "param2": story, "post_run_webhook": [hook]}
    with running_queue(tmp_path, name="webhook") as queue:
        open_to_others(queue.root.path)
        socket = queue.dir.socket
        failed = queue.run(**fields)["msg_id"]
        waiting = queue.send(**fields, due=4e9)
        assert "sesame" in of_every_look(socket, failed)
        with acting_as(STRANGER, 0):
            for msg_id in (failed, waiting):
                shown = of_every_look(socket, msg_id)
                assert "hooks.example/(hidden)" in shown
                assert "sesame" not in shown
            changes = {"post_run_webhook": ["https://hooks.example/(hidden)"]}
            reply = old_ask(
                socket, "edit_message", {"msg_id": failed, "changes": changes}
            )
            assert "holds (hidden)" in str(reply)
            moved = old_ask(socket, "move_message", {"msg_id": failed, "to": "mail"})
            assert "an admin may move" in str(moved)
            bulk = {"action": "move", "to": "mail", "filter": {"state": "err"}}
            assert "an admin may move" in str(old_ask(socket, "bulk", bulk))
        queue.close()
        for log in queue.root.log.rglob("*"):
            assert not log.is_file() or "sesame" not in log.read_text()
    with acting_as(STRANGER, 0), owner.Reader(queue.root) as reader:
        shown = str(reader.message("webhook", failed))
        shown += str(reader.messages("webhook", State.QUE, 9))
    assert "hooks.example/(hidden)" in shown
    assert "sesame" not in shown


def test_no_count_tells_an_operator_what_an_address_holds(tmp_path):
    url = "https://hooks.example/T00/sesame"
    with running_queue(tmp_path, name="webhook") as queue:
        open_to_others(queue.root.path)
        queue.send(param1=url, param2="{}", due=4e9)

        def counted(**wanted):
            asked = {"action": "hold", "filter": {"state": "que", **wanted}}
            return queue.ok("bulk", {**asked, "dry_run": True})["messages"]

        with acting_as(STRANGER, 0):
            assert counted(find="HOOKS.example") == 1
            assert counted(find="T00/s") == 0
            assert counted(param1=url, find="hooks") == 1


@pytest.mark.parametrize("dest", ["webhook", "/q/notice"])
def test_addresses_on_their_way_to_where_they_are_hidden_are_hidden_too(tmp_path, dest):
    with running_queue(tmp_path, name="rq_router") as queue:
        open_to_others(queue.root.path)
        url = "https://hooks.example/T00/sesame"
        fields = {"dest": dest, "param1": url, "param2": "{}", "due": 4e9}
        msg_id = short(queue.ok("create_message", fields))
        found = {"action": "hold", "filter": {"state": "que", "find": "sesame"}}
        with acting_as(STRANGER, 0):
            [row] = queue.ok("list", {"state": "que"})
            assert row["param1"] == "https://hooks.example/(hidden)"
            shown = queue.ok("get_message", {"msg_id": msg_id})
            assert "sesame" not in str(shown)
            assert queue.ok("bulk", {**found, "dry_run": True})["messages"] == 0
        queue.stop()
        [row] = offline.rows(queue.dir, State.QUE, 9)
        assert "sesame" not in str(secrets.below_admin(row, "rq_router"))
        queue.start()


def test_what_an_asker_may_not_see_is_not_found_by_a_filter(tmp_path):
    hook = "https://hooks.example/T00/sesame"
    with running_queue(tmp_path) as queue:
        open_to_others(queue.root.path)
        ended = queue.run(param1="echo done >&3", post_run_webhook=[hook])["msg_id"]
        secret = {"state": "done", "filter": "T00/ses"}
        assert queue.ask("messages", secret) == [ended]
        with acting_as(STRANGER, 0):
            assert queue.ask("messages", secret) == []
            assert queue.ask("messages", {**secret, "filter": "hooks.ex"}) == [ended]


def test_a_list_by_a_text_finds_what_the_asker_is_shown_alone(tmp_path):
    says = "echo 'err no answer of https://hooks.example/T00/sesame' >&3; exit 1"
    with running_queue(tmp_path, name="webhook") as queue:
        open_to_others(queue.root.path)
        queue.run(param1=says)
        secret, host = (
            {"state": "err", "filter": {"text": text}} for text in ("ses", "hooks.ex")
        )
        by_param = {"state": "err", "filter": {"param1": says}}
        by_key = {"state": "err", "filter": {"key": "k"}}
        for wanted in (secret, host, by_param):
            assert len(queue.ok("list", wanted)) == 1
        assert queue.ok("list", by_key) == []
        with acting_as(STRANGER, 0):
            assert queue.ok("list", secret) == []
            assert queue.ok("list", by_param) == []
            assert len(queue.ok("list", host)) == 1
            assert "admin" in queue.refused("list", by_key)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="util-linux is missing")
def test_a_user_of_another_namespace_is_nobody(tmp_path):
    open_to_others(tmp_path)
    path = tmp_path / "sock"
    words = ["unshare", "--user", "--map-root-user", sys.executable, "-c"]
    with subprocess.Popen(
        [*words, IN_A_NAMESPACE, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    ) as process:
        assert process.stdout.readline() == "True False\n"
        assert process.stdout.readline() == "ready\n"
        with acting_as(STRANGER, 0):
            client.Connection(Path(path)).close()
        assert "the kernel does not say who asks" in process.stdout.readline()
        process.wait(30)


def test_a_path_of_another_user_leads_to_nothing_that_rq_itself_has_open(tmp_path):
    open_to_others(tmp_path)
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    for name in ("closed/file", "open"):
        (tmp_path / name).write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "open")
    peer = peers.Peer(os.getpid(), STRANGER, STRANGER)
    held = os.open(closed, os.O_RDONLY)
    try:
        here = (f"fd/{held}/file", "maps", "status")
        for path in [f"/proc/self/{one}" for one in here]:
            with pytest.raises(OSError, match=r"link|/proc"):
                os.close(peers.open_as(path, peer))
        for name in ("open", "link"):
            os.close(peers.open_as(str(tmp_path / name), peer))
    finally:
        os.close(held)
