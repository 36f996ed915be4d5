"""The timers process with a real supervisor and real queues."""

import contextlib
import json
import os
import socket
import threading
import time

import pytest
from harness.cli import rq
from harness.supervisor import annoy, connect
from harness.waiting import wait_until

from rq import names
from rq.config import files
from rq.rpc import client, wire
from rq.timers.state import read_state

pytestmark = pytest.mark.process

# Verbatim from the seed, with its blank line at the end.
SAMPLE = """{
  "period" : 86400,
  "msg" :
  {
    "dest" : "cleaner"
  }
}

"""


@pytest.fixture
def running(daemon):
    daemon.start()
    daemon.until_up("timers")
    return daemon


def ask(daemon, command):
    word, result = client.ask_timers(daemon.root.timers_socket, command)
    assert word == "ok"
    return result


def row(daemon, name):
    return {one["name"]: one for one in ask(daemon, "status")["timers"]}[name]


def write(daemon, name, dest="q", period=86400, **params):
    path = daemon.root.timers / f"{name}.json"
    message = {"dest": dest, **params}
    path.write_text(json.dumps({"period": period, "msg": message}))
    return path


def pause_for(seconds):
    time.sleep(seconds)


def fired(daemon, name):
    return daemon.messages(name)


def test_the_seeds_sample_fires_at_once_and_then_daily(running):
    running.create("cleaner")
    sample = running.root.path / "sample.json"
    sample.write_text(SAMPLE)
    (running.root.timers / "daily.json").symlink_to(sample)
    began = time.time()
    wait_until(lambda: fired(running, "cleaner") == 1, 60)
    wait_until(lambda: row(running, "daily")["last"], 60)
    [[name, due]] = ask(running, "get_timers")
    assert name == "daily"
    assert began - 2 < due - 86400 < time.time()
    assert ask(running, "get_status") == {"sent": 1, "errors": 0}
    assert row(running, "daily")["result"].startswith("sent http://127.0.0.1:3333/q/cl")


@pytest.mark.slow
def test_touch_relink_and_restart_fire_nothing_again(daemon):
    daemon.start()
    daemon.create("q")
    path = write(daemon, "t")
    wait_until(lambda: fired(daemon, "q") == 1)
    path.touch()
    write(daemon, "t", param1="other")
    target = path.rename(daemon.root.path / "t.json")
    path.symlink_to(target)
    daemon.kill("timers")
    pause_for(0.3)
    daemon.until_up("timers")
    daemon.stop()
    daemon.start()
    daemon.until_up("q")
    daemon.until_up("timers")
    pause_for(2.5)
    assert fired(daemon, "q") == 1


@pytest.mark.slow
def test_a_removed_timer_is_forgotten(shared):
    shared.create("q")
    path = write(shared, "t")
    wait_until(lambda: fired(shared, "q") == 1)
    path.unlink()
    wait_until(lambda: read_state(shared.root) == {})
    assert ask(shared, "get_timers") == []
    write(shared, "t")
    wait_until(lambda: fired(shared, "q") == 2)


@pytest.mark.slow
def test_a_due_timer_fires_soon(daemon):
    last = time.time() - 60 + 4
    kept = {"timers": {"t": {"last": last}}, "errors": {}}
    files.write_state(daemon.root.timers_state, kept)
    write(daemon, "t", period=60)
    daemon.start()
    daemon.create("q")
    begun = time.time()
    wait_until(lambda: fired(daemon, "q") == 1, 60)
    # The next is known when the answer has come, a moment after the message.
    wait_until(lambda: abs(row(daemon, "t")["due"] - (last + 120)) < 0.01)
    sent = names.created(row(daemon, "t")["result"].rpartition("/")[2])
    assert last + 60 - 0.01 < sent  # its id has milliseconds
    assert sent < max(begun, last + 60) + 20


@pytest.mark.slow
def test_after_a_long_stop_it_fires_once(daemon):
    kept = {"timers": {"t": {"last": time.time() - 1e6}}, "errors": {}}
    files.write_state(daemon.root.timers_state, kept)
    write(daemon, "t", period=60)
    daemon.start()
    daemon.create("q")
    wait_until(lambda: fired(daemon, "q") == 1)
    pause_for(1.5)
    assert fired(daemon, "q") == 1


@pytest.mark.slow
def test_a_paused_queue_takes_the_message_of_a_timer(shared):
    shared.create("q")
    shared.ask("pause_queue", "q")
    wait_until(lambda: shared.ask_queue("q", "status") == ["PAUSE"])
    write(shared, "t")
    wait_until(lambda: row(shared, "t")["result"].startswith("sent "))
    assert fired(shared, "q") == 1


@pytest.mark.slow
def test_a_fire_waits_for_a_queue_that_is_down_and_is_then_sent_once(shared):
    shared.create("q")
    shared.ask("down_queue", "q")
    wait_until(lambda: shared.ask_queue("q", "status") == ["DOWN"])
    write(shared, "t")
    wait_until(lambda: row(shared, "t")["result"].startswith("waits: queue q refused"))
    assert row(shared, "t")["error"] == ""  # a person wants it so
    assert row(shared, "t")["due"] < time.time() + 120
    shared.ask("up_queue", "q")
    wait_until(lambda: row(shared, "t")["result"].startswith("sent "), 90)
    assert fired(shared, "q") == 1
    assert row(shared, "t")["due"] > time.time() + 80000


@pytest.mark.slow
def test_a_timer_of_cron_fires_when_its_minute_comes_and_tells_its_rule(shared):
    shared.create("q")
    path = shared.root.timers / "t.json"
    rule = {"cron": "* * * * *", "timezone": "Asia/Kathmandu"}
    path.write_text(json.dumps({**rule, "msg": {"dest": "q"}}))
    wait_until(lambda: row(shared, "t")["due"] % 60 == 0)
    assert fired(shared, "q") == 0
    wait_until(lambda: fired(shared, "q") == 1, 90)
    wait_until(lambda: row(shared, "t")["last"], 60)
    shown = row(shared, "t")
    assert {**shown, **rule, "period": None, "paused": None} == shown
    assert shown["last"] % 60 == 0


@pytest.mark.slow
def test_a_queue_that_comes_later_gets_its_message_then(shared):
    write(shared, "t")
    wait_until(lambda: row(shared, "t")["error"] == "there is no queue 'q'")
    wait_until(lambda: "t" in shared.ask("status")["timers"]["errors"])
    shared.create("q")
    wait_until(lambda: fired(shared, "q") == 1, 60)
    wait_until(lambda: row(shared, "t")["error"] == "")
    wait_until(lambda: shared.ask("status")["timers"]["errors"] == {})


@pytest.mark.slow
def test_wrong_files_are_shown_and_the_others_go_on(shared):
    shared.create("q")
    (shared.root.timers / "bad.json").write_text("{")
    (shared.root.timers / "old.yaml").write_text("period: 60\n")
    (shared.root.timers / "gone.json").symlink_to("/nonexistent/gone.json")
    (shared.root.timers / "endless.json").symlink_to("/dev/zero")
    os.mkfifo(shared.root.timers / "fifo.json")
    write(shared, "good")
    wait_until(lambda: fired(shared, "q") == 1)
    errors = ask(shared, "status")["errors"]
    wrong = {"bad.json", "old.yaml", "gone.json", "endless.json", "fifo.json"}
    assert set(errors) == wrong
    assert "YAML" in errors["old.yaml"]
    assert "not a regular file" in errors["fifo.json"]
    assert [one for one, _ in ask(shared, "get_timers")] == ["good"]
    (shared.root.timers / "bad.json").unlink()
    wait_until(lambda: "bad.json" not in ask(shared, "status")["errors"])


@pytest.mark.slow
def test_a_timer_that_breaks_and_is_mended_keeps_its_beat(shared):
    shared.create("q")
    path = write(shared, "t")
    wait_until(lambda: fired(shared, "q") == 1)
    wait_until(lambda: row(shared, "t")["last"])
    due = row(shared, "t")["due"]
    path.write_text("{")
    wait_until(lambda: ask(shared, "get_timers") == [])
    write(shared, "t")
    wait_until(lambda: row(shared, "t")["due"] == due)
    assert fired(shared, "q") == 1


@pytest.mark.slow
def test_params_arrive_and_a_remote_dest_goes_to_relay(shared):
    shared.create("relay")
    write(shared, "t", dest="http://127.0.0.1:1/q/far", param1="a", param2="b")
    wait_until(lambda: fired(shared, "relay") == 1)


@pytest.mark.slow
def test_a_queue_that_hangs_delays_no_other(shared):
    shared.create("q")
    hanging = shared.root.queue("hang").path
    hanging.mkdir()
    sock = client.listen(hanging / "queue.sock")
    write(shared, "a", dest="hang")
    write(shared, "b")
    wait_until(lambda: fired(shared, "q") == 1, 60)
    wait_until(lambda: "did not answer" in row(shared, "a")["error"], 60)
    # Nothing was sent, so it is tried soon and not a day later.
    assert row(shared, "a")["due"] < time.time() + 3600
    sock.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "said", [b"+PONG and good night\r\n", wire.frame(b'["a","b"]')]
)
def test_what_is_no_queue_is_tried_again_later_and_shown(shared, said):
    odd = shared.root.queue("odd").path
    odd.mkdir()
    with client.listen(odd / "queue.sock") as sock:
        sock.setblocking(True)
        talker = threading.Thread(target=babble, args=(sock, said), daemon=True)
        talker.start()
        write(shared, "t", dest="odd")
        wait_until(lambda: row(shared, "t")["error"] != "", 60)
        sock.shutdown(socket.SHUT_RDWR)
        talker.join(60)
    assert row(shared, "t")["result"] == "failed"
    wait_until(lambda: read_state(shared.root)["t"].failures >= 1)


def babble(sock, said):
    with contextlib.suppress(OSError):
        while True:
            line, _ = sock.accept()
            with line:
                line.recv(4096)
                line.sendall(said)


@pytest.mark.slow
def test_bad_clients_cost_only_themselves(shared):
    shared.create("q")
    pid = shared.child("timers")["pid"]
    path = shared.root.timers_socket
    silent = annoy(path, wire.MAGIC2)
    with connect(path) as line:
        line.sendall(wire.frame(b'["nonsense", {}]', wire.MAGIC2))
        assert b'["fail","unknown command' in line.recv(999)
    assert ask(shared, "get_timers") == []
    write(shared, "t")
    wait_until(lambda: fired(shared, "q") == 1, 60)
    assert shared.child("timers")["pid"] == pid
    for line in silent:
        line.close()


@pytest.mark.slow
def test_a_lost_state_file_is_no_end(daemon):
    daemon.root.timers_state.write_text('{"timers": {"t": 7}}')
    write(daemon, "t")
    daemon.start()
    daemon.create("q")
    wait_until(lambda: fired(daemon, "q") == 1)


def about(daemon, name):
    """Return all that is told of a timer."""
    return client.demanded(
        client.ask_timers(daemon.root.timers_socket, "timer", name, 20)
    )


def verb(daemon, *words):
    done = rq("timer", *words, root=daemon.root.path)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.slow
def test_a_person_runs_a_timer_beside_its_beat_and_sees_what_became_of_it(shared):
    shared.create("q")
    write(shared, "t")
    wait_until(lambda: fired(shared, "q") == 1)
    due = wait_until(lambda: row(shared, "t")["due"])
    done = verb(shared, "run", "t")
    assert done.stdout.startswith("timer t: sent http://")
    assert fired(shared, "q") == 2
    told = wait_until(
        lambda: [
            fires
            for fires in [about(shared, "t")["fires"]]
            if [fire["outcome"] for fire in fires] == ["done", "done"]
        ]
    )
    assert [fire["said"] for fire in told[0]] == ["run", "sent"]
    assert told[0][0]["url"] == done.stdout.split()[-1]
    assert row(shared, "t")["due"] == due


@pytest.mark.slow
def test_a_paused_timer_fires_nothing_until_it_is_resumed_also_after_a_kill(daemon):
    last = time.time() - 3600 + 15
    files.write_state(daemon.root.timers_state, {"timers": {"t": {"last": last}}})
    write(daemon, "t", period=3600)
    daemon.start()
    daemon.create("q")
    wait_until(lambda: row(daemon, "t"))
    assert verb(daemon, "pause", "t").stdout == "timer t is paused\n"
    daemon.kill("timers")
    pause_for(0.3)
    daemon.until_up("timers")
    wait_until(lambda: row(daemon, "t")["paused"] is not None)
    assert ask(daemon, "get_timers") == []
    assert verb(daemon, "next").stdout.count("\n") == 1  # the head alone
    wait_until(lambda: time.time() > last + 3601, 60)
    assert fired(daemon, "q") == 0
    assert "timer t goes on, and fires in " in verb(daemon, "resume", "t").stdout
    assert abs(row(daemon, "t")["due"] - (last + 7200)) < 0.01  # its old beat
    assert fired(daemon, "q") == 0


@pytest.mark.slow
def test_the_next_fires_of_all_timers_are_told_in_their_order(shared):
    for name, minute in (("a", 10), ("b", 40)):
        rule = {"cron": f"{minute} * * * *", "timezone": "Asia/Kathmandu"}
        text = json.dumps({**rule, "msg": {"dest": "q"}})
        (shared.root.timers / f"{name}.json").write_text(text)
    wait_until(lambda: len(ask(shared, "get_timers")) == 2)
    rows = json.loads(verb(shared, "next", "5", "--json").stdout)
    assert [one["at"] for one in rows] == sorted(one["at"] for one in rows)
    assert {one["name"] for one in rows[:2]} == {"a", "b"}
    assert len(rows) == 5
    assert all(one["local"].endswith(":00 +0545 (UTC+05:45)") for one in rows)
    named = json.loads(verb(shared, "next", "2", "b", "--json").stdout)
    assert json.loads(verb(shared, "next", "b", "--json").stdout)[:2] == named
    assert [one["name"] for one in named] == ["b", "b"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        (["run", "nobody"], "there is no timer 'nobody'", 3),
        (["pause", "nobody"], "there is no timer 'nobody'", 3),
        (["next", "5", "nobody"], "there is no timer 'nobody'", 3),
        (["next", "5000"], "it is from 1 to 1000", 2),
        (["run", "t"], "nobody answers", 6),
    ],
)
def test_what_cannot_be_done_with_a_timer_is_said_in_a_sentence(
    shared, words, told, code
):
    write(shared, "t", dest="missing")
    wait_until(lambda: row(shared, "t")["error"])
    done = verb(shared, *words)
    assert (told in done.stderr, done.returncode) == (True, code), done.stderr


def test_without_rq_nothing_is_run(tmp_path):
    done = rq("timer", "run", "t", root=tmp_path)
    assert "run `rq up`" in done.stderr
    assert done.returncode == 6
