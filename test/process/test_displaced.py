"""An owner whose directory is gone, or another by its path, promises nothing any more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.broker import Broker, Client, Refused, broker_in
from harness.ports import free_port
from harness.processes import lives
from harness.queues import RunningQueue, running_queue
from harness.sockets import old_line
from harness.supervisor import Daemon, daemon_on
from harness.waiting import wait_until

from rq.access import sockets
from rq.access.roles import Role
from rq.access.sockets import Asker
from rq.config import files
from rq.layout import Root
from rq.replies import health
from rq.rpc import client
from rq.rpc import server as control
from rq.rpc.client import Connection
from rq.rpc.lines.owners import Owners
from rq.timers.past import Past
from rq.timers.state import State, read_state

DISPLACED = 4  # the exit status
SLOW = '#!/bin/sh\necho $$ > "$PLACE/pid"\nexec sleep 600\n'


def erase(path: Path) -> None:
    def is_gone() -> bool:  # its owner may make a file meanwhile
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()

    wait_until(is_gone)


def remove(queue: RunningQueue) -> None:
    erase(queue.dir.path)


def move(queue: RunningQueue) -> None:
    queue.dir.path.rename(queue.root.path / "elsewhere")


def remove_journal(queue: RunningQueue) -> None:
    erase(queue.dir.journal)


def lay_a_backup_over(queue: RunningQueue) -> None:
    backup = queue.root.path / "backup"
    shutil.copytree(queue.dir.path, backup, ignore=shutil.ignore_patterns("*.sock"))
    for path in backup.rglob("*"):
        if path.is_file():
            target = queue.dir.path / path.relative_to(backup)
            target.unlink()
            shutil.copy(path, target)


def put_another_there(queue: RunningQueue) -> None:
    move(queue)
    shutil.copytree(
        queue.root.path / "elsewhere",
        queue.dir.path,
        ignore=shutil.ignore_patterns("*.sock"),
    )


def mount_over(queue: RunningQueue) -> None:
    mounted("-t", "tmpfs", "none", str(queue.dir.path))


def bind_over(queue: RunningQueue) -> None:
    other = queue.root.path / "other"
    shutil.copytree(queue.dir.path, other, ignore=shutil.ignore_patterns("*.sock"))
    mounted("--bind", str(other), str(queue.dir.path))


def mounted(*words: str) -> None:
    done = subprocess.run(
        ["mount", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()} -> run as root")


WAYS: list[Callable[[RunningQueue], None]] = [
    remove,
    move,
    remove_journal,
    lay_a_backup_over,
    put_another_there,
    mount_over,
    bind_over,
]


@contextlib.contextmanager
def owner(path: Path, script: str = SLOW, **settings: Any) -> Iterator[RunningQueue]:
    """Give a queue of which nothing has to be in order at the end."""
    env = {"PLACE": str(path), **settings.pop("env", {})}
    queue = RunningQueue(path, "t", script, env_vars=env, **settings)
    queue.start()
    try:
        yield queue
    finally:
        queue.kill()
        mounts = Path("/proc/mounts").read_text().split("\n")
        for _ in [line for line in mounts if f" {queue.dir.path} " in line]:
            subprocess.run(["umount", "-l", queue.dir.path], check=True)


def refusal(queue: RunningQueue, line: Connection) -> str:
    """Send until the queue refuses; return its sentence."""
    answers: list[list[str]] = []

    def refused() -> bool:
        answers.append(line.ask("create_message", {"dest": "t"}))
        return answers[-1][0] == "fail"

    wait_until(refused)
    return answers[-1][1]


def running_script(queue: RunningQueue) -> int:
    """Send a message; return the process that works on it."""
    queue.send()
    pid = queue.root.path / "pid"
    wait_until(lambda: pid.exists() and bool(pid.read_text().strip()))
    return int(pid.read_text())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_owner_without_its_directory_accepts_nothing_and_ends(
    tmp_path: Path, way: Callable[[RunningQueue], None]
) -> None:
    with owner(tmp_path) as queue:
        script = running_script(queue)
        with old_line(queue.dir.socket) as line:
            assert line.ask("create_message", {"dest": "t"})[0] == "ok"
            way(queue)
            assert "queue/t" in refusal(queue, line)
        assert queue.process is not None
        assert queue.process.wait(60) == DISPLACED, queue.log()
        assert not lives(script)


@pytest.mark.slow
def test_an_idle_owner_looks_at_its_directory_by_itself(tmp_path: Path) -> None:
    with owner(tmp_path) as queue:
        remove(queue)
        assert queue.process is not None
        assert queue.process.wait(60) == DISPLACED, queue.log()


def test_a_seal_is_no_change_of_the_directory(tmp_path: Path) -> None:
    with running_queue(tmp_path) as queue:
        for _ in range(5):
            queue.run()
            queue.ok("seal")
        queue.run()


# ---- what the supervisor does then


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_on(tmp_path / "root") as daemon:
        yield daemon
        mounts = Path("/proc/mounts").read_text().split("\n")
        for line in [line for line in mounts if str(tmp_path) in line]:
            subprocess.run(["umount", "-l", line.split(" ")[1]], check=True)


def looked(daemon: Daemon) -> None:
    """Wait until scandir has looked at all links once more."""
    name = f"after{len(list(daemon.root.scandir.iterdir()))}"
    daemon.link(name, daemon.define(name))
    daemon.until_up(name)


def held(daemon: Daemon) -> str:
    return str(daemon.ask("status")["displaced"].get("a", ""))


@pytest.mark.slow
@pytest.mark.parametrize("sees_it", [True, False], ids=["seen", "killed before"])
def test_a_queue_that_vanished_is_not_made_again_until_the_operator_says_so(
    daemon: Daemon, sees_it: bool
) -> None:
    daemon.link("a", daemon.define("a"))
    daemon.start()
    pid = daemon.until_up("a")["pid"]
    if not sees_it:
        os.kill(pid, signal.SIGSTOP)
    shutil.rmtree(daemon.root.queue("a").path)
    if not sees_it:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "rq queue restart a" in held(daemon), 60)
    looked(daemon)
    assert not daemon.root.queue("a").path.exists()
    wait_until(lambda: "a" not in daemon.ask("queues"), 60)
    daemon.stop()
    daemon.start()
    looked(daemon)
    assert held(daemon)
    troubles = [each.sentence for each in health.of_helpers(daemon.ask("status"))]
    assert sum("rq queue restart a" in sentence for sentence in troubles) == 1
    assert not daemon.root.queue("a").path.exists()
    made = {"name": "a", "script": str(daemon.script)}
    assert "a is held" in daemon.ask("create_queue", made)[1]
    assert daemon.ask("restart_queue", "a") == ["ok", "a"]
    daemon.until_up("a")
    assert not held(daemon)


def empty(path: Path) -> None:
    """Leave the place to which a file system was mounted, say."""
    erase(path)
    path.mkdir()


@pytest.mark.slow
@pytest.mark.parametrize(
    "lose",
    [erase, empty, lambda path: erase(path / "journal")],
    ids=["remove", "umount", "journal"],
)
def test_a_queue_that_vanished_while_rq_was_down_waits_for_the_operator(
    daemon: Daemon, lose: Callable[[Path], None]
) -> None:
    daemon.link("a", daemon.define("a"))
    daemon.start()
    daemon.until_up("a")
    daemon.create("api")
    assert daemon.ask_queue("a", "create_message", {"dest": "a", "due": 4e9})[0] == "ok"
    daemon.stop()
    place = daemon.root.queue("a").path
    lose(place)
    erase(daemon.root.queue("api").path)
    left = sorted(place.rglob("*"))
    daemon.start()
    assert "rq queue restart a" in held(daemon)
    assert daemon.ask("status")["displaced"]["api"]
    looked(daemon)
    assert sorted(place.rglob("*")) == left
    asked = {"name": "api", "script": str(daemon.script)}
    assert "api is held" in daemon.ask("create_queue", asked)[1]
    assert daemon.ask("delete_queue", "api")[0] == "ok"
    assert daemon.ask("restart_queue", "a") == ["ok", "a"]
    daemon.until_up("a")
    daemon.stop()
    daemon.start()
    assert daemon.ask("status")["displaced"] == {}


@pytest.mark.slow
def test_a_queue_that_was_mounted_over_begins_with_what_was_there_before(
    daemon: Daemon,
) -> None:
    daemon.link("a", daemon.define("a"))
    daemon.start()
    daemon.until_up("a")
    assert daemon.ask_queue("a", "create_message", {"dest": "a", "due": 4e9})[0] == "ok"
    place = daemon.root.queue("a").path
    other = daemon.root.path / "other"
    other.mkdir()
    shutil.copy(place / "config.json", other)
    mounted("--bind", str(other), str(place))
    wait_until(lambda: "rq queue restart a" in held(daemon), 60)
    wait_until(lambda: daemon.child("a")["state"] == "FATAL", 60)
    looked(daemon)
    assert sorted(other.iterdir()) == [other / "config.json"]
    subprocess.run(["umount", place], check=True)
    assert daemon.ask("restart_queue", "a") == ["ok", "a"]
    daemon.until_up("a")
    assert daemon.messages("a") == 1


# ---- the broker


def lose_nothing_more(broker: Broker, client: Client, is_removed: bool) -> None:
    """Add jobs until the broker refuses one, and ends: the first one where the files are
    gone, else after a moment."""
    answers: list[Any] = []
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            answers.append(client.ask("ADDJOB", "q", "late", 0))
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert all("accepts nothing, and ends" in answer for answer in refused)
    assert refused == answers or not is_removed
    assert broker.process is not None
    assert broker.process.wait(60) == DISPLACED, broker.log.read_text()


PLACES: list[Callable[[Path], object]] = [
    erase,
    lambda path: path.rename(path.with_name("elsewhere")),
    lambda path: erase(path / "journal"),
    lambda path: mounted("-t", "tmpfs", "none", str(path)),
]


@pytest.mark.parametrize("lose", PLACES, ids=["remove", "move", "journal", "mount"])
def test_a_broker_without_its_directory_keeps_no_job_and_ends(
    tmp_path: Path, lose: Callable[[Path], object]
) -> None:
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        idle = broker.client()
        client.ask("ADDJOB", "q", "early", 0)
        lose(broker.directory)
        try:
            is_removed = lose in (PLACES[0], PLACES[2])
            lose_nothing_more(broker, client, is_removed)
            assert not list(tmp_path.glob("node/journal/*/*"))
            with pytest.raises(EOFError):
                idle.answer()
        finally:
            if os.path.ismount(broker.directory):
                subprocess.run(["umount", "-l", broker.directory], check=True)


@pytest.mark.slow
def test_a_broker_that_waits_for_nothing_looks_at_its_directory(tmp_path: Path) -> None:
    with broker_in(tmp_path / "node") as broker:
        assert broker.start().ask("PING") == "PONG"  # its directory is made by now
        shutil.rmtree(broker.directory)
        assert broker.process is not None
        assert broker.process.wait(60) == DISPLACED


def held_broker(daemon: Daemon) -> str:
    return str(daemon.ask("status")["displaced"].get("broker/", ""))


@pytest.mark.slow
@pytest.mark.parametrize("sees_it", [True, False], ids=["seen", "killed before"])
def test_a_broker_that_vanished_waits_for_the_operator(
    daemon: Daemon, sees_it: bool
) -> None:
    root, port = daemon.root, free_port()
    files.write_state(root.broker_config, {"enabled": True, "port": port})
    daemon.start()
    pid = daemon.until_up("broker")["pid"]
    if not sees_it:
        os.kill(pid, signal.SIGSTOP)
    shutil.rmtree(root.broker)
    if not sees_it:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "rq broker accept" in held_broker(daemon), 60)
    wait_until(lambda: daemon.child("broker")["state"] == "FATAL", 60)
    daemon.stop()
    daemon.start()
    wait_until(lambda: daemon.child("broker")["state"] == "FATAL", 60)
    assert daemon.ask("broker") == ["ok"]
    wait_until(lambda: daemon.child("broker")["state"] == "FATAL", 60)
    assert "rq broker accept" in daemon.child("broker")["reason"]
    assert not root.broker.exists()
    daemon.ask("broker", "accept")
    daemon.until_up("broker")
    assert not held_broker(daemon)


@pytest.mark.slow
@pytest.mark.parametrize("is_down", [True, False], ids=["down", "disabled"])
def test_a_broker_that_vanished_while_it_did_not_run_begins_no_empty_one(
    daemon: Daemon, is_down: bool
) -> None:
    def enable(enabled: bool) -> None:
        files.write_state(config, {"enabled": enabled, "port": port})

    config, port = daemon.root.broker_config, free_port()
    enable(True)
    daemon.start()
    daemon.until_up("broker")
    if is_down:
        daemon.stop()
    else:
        enable(False)
        daemon.ask("broker")
        wait_until(lambda: daemon.child("broker")["state"] == "DOWN", 60)
    erase(daemon.root.broker)
    if is_down:
        daemon.start()
    else:
        enable(True)
        daemon.ask("broker")
    wait_until(lambda: daemon.child("broker")["state"] == "FATAL", 60)
    assert "rq broker accept" in daemon.child("broker")["reason"]
    assert not daemon.root.broker.exists()
    daemon.ask("broker", "accept")
    daemon.until_up("broker")


# ---- the supervisor, and what its children keep open


@pytest.mark.slow
@pytest.mark.parametrize("what", ["config", "."], ids=["config", "root"])
def test_a_supervisor_whose_root_was_replaced_stops_and_leaves_the_other_alone(
    daemon: Daemon, what: str
) -> None:
    daemon.link("a", daemon.define("a"))
    daemon.start()
    pid = daemon.until_up("a")["pid"]
    place = (daemon.root.path / what).resolve()
    away = place.with_name("away")
    place.rename(away)
    ignored = shutil.ignore_patterns("*sock", "*.lock")
    shutil.copytree(away, place, symlinks=True, ignore=ignored)
    (daemon.root.config_dir / "queuemgr.sock").write_text("another's")
    assert daemon.process is not None
    assert daemon.process.wait(60) == DISPLACED
    wait_until(lambda: not lives(pid), 60)
    assert (daemon.root.config_dir / "queuemgr.sock").read_text() == "another's"
    assert daemon.root.supervisor_pid.exists()
    (daemon.root.config_dir / "queuemgr.sock").unlink()


def test_a_journal_of_timers_that_was_replaced_takes_no_line_and_is_begun_again(
    tmp_path: Path,
) -> None:
    root = Root(tmp_path)
    files.make_root(root)
    state = State(root)
    state.save({"t": Past(last=1.0)}, {})
    state.save({"t": Past(last=2.0)}, {})
    old = root.timers_journal.read_bytes()
    for lose in (root.timers_journal.unlink, lambda: replace(root, old)):
        lose()
        with pytest.raises(OSError, match=r"[Nn]o such file|another file"):
            state.save({"t": Past(last=3.0)}, {})
        state.save({"t": Past(last=3.0)}, {})
        assert read_state(root)["t"].last == 3.0
        state.save({"t": Past(last=2.0)}, {})


def replace(root: Root, data: bytes) -> None:
    root.timers_journal.unlink()
    root.timers_journal.write_bytes(data)


def test_a_kept_line_ends_when_another_owner_has_the_name_of_its_socket(
    tmp_path: Path,
) -> None:
    async def ask_both(root: Root) -> list[str]:
        def answer(name: str) -> Callable[[bytes, Asker], Awaitable[object]]:
            async def answered(_payload: bytes, _asker: Asker) -> object:
                return ["ok", name]

            return answered

        owners, answers, servers = Owners(root), [], []
        place = root.queue("t").path
        for name in ("first", "second"):
            place.mkdir(parents=True)
            sock = client.listen(root.queue("t").socket)
            policy = sockets.policy(Role.ADMIN, None)
            servers.append(control.Server(sock, policy, answer(name)))
            servers[-1].start()
            answers += [str(await owners.demand("t", "status")) for _ in range(2)]
            place.rename(tmp_path / name)
        owners.close()
        for server in servers:
            server.close()
        await asyncio.sleep(0)
        return answers

    assert asyncio.run(ask_both(Root(tmp_path))) == ["first"] * 2 + ["second"] * 2


@pytest.mark.slow
def test_a_queue_that_vanished_can_be_deleted(daemon: Daemon) -> None:
    daemon.start()
    daemon.create("a")
    shutil.rmtree(daemon.root.queue("a").path)
    wait_until(lambda: held(daemon), 60)
    assert daemon.ask("delete_queue", "a")[0] == "ok"
    assert not held(daemon)
    daemon.create("b")
    daemon.ask("delete_queue", "b")
    wait_until(lambda: "b" not in daemon.ask("queues"), 60)
    daemon.stop()
    daemon.start()
    assert daemon.ask("status")["displaced"] == {}
