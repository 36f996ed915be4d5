"""What an operator asks a broker: CONFIG, INFO, CLIENT, MONITOR, SLOWLOG, COMMAND."""

import contextlib
import json
import time

import pytest
from harness.broker import Client, Refused, broker_in, command
from harness.waiting import wait_until

from rq.config import passwords

pytestmark = pytest.mark.process
SECRET = "correct horse"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A broker of a root; tests leave its settings as they were."""
    with broker_in(
        tmp_path_factory.mktemp("broker") / "root", maxclients=100
    ) as broker:
        broker.start().close()
        yield broker


@pytest.fixture
def client(shared):
    client = Client(shared.port)
    yield client
    client.close()


@pytest.fixture
def other(shared):
    other = Client(shared.port)
    yield other
    other.close()


def until_closed(client):
    told = []
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            told.append(client.answer())
    return told


def facts(client, *section):
    lines = client.ask("INFO", *section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


# ---- CONFIG


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("maxmemory", "2gb", str(2 * 1024**3)),
        ("maxmemory", "5k", "5000"),
        ("maxclients", "77", "77"),
        ("appendfsync", "everysec", "everysec"),
        ("slowlog-log-slower-than", "-1", "-1"),
        ("slowlog-max-len", "3", "3"),
        ("latency-monitor-threshold", "100", "100"),
        ("maxmemory-policy", "noeviction", "noeviction"),
        ("appendonly", "no", "no"),
        ("aof-enqueue-jobs-once", "yes", "yes"),
        ("hz", "500", "500"),
        ("loglevel", "Debug", "debug"),
        ("auto-aof-rewrite-min-size", "1mb", "1048576"),
        ("client-output-buffer-limit", "normal 1 2 3", "normal 1 2 3"),
    ],
)
def test_a_setting_is_changed_while_it_runs(client, name, value, told):
    before = client.ask("CONFIG", "GET", name)[1]
    try:
        assert client.ask("config", "set", name.upper(), value) == "OK"
        assert client.ask("CONFIG", "GET", name) == [name.encode(), told.encode()]
    finally:
        assert client.ask("CONFIG", "SET", name, before) == "OK"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("SET", "dir", "/"), "ERR Unsupported CONFIG parameter: dir"),
        (("SET", "port", "1"), "ERR Unsupported CONFIG parameter: port"),
        (("SET", "maxclients", "0"), "ERR Invalid argument '0' for CONFIG SET 'max"),
        (("SET", "maxmemory", "1x"), "ERR Invalid argument '1x' for CONFIG SET"),
        (("SET", "maxmemory", "gb"), "ERR Invalid argument 'gb' for CONFIG SET"),
        (("SET", "appendfsync", "now"), "ERR Invalid argument 'now' for CONFIG SET"),
        (("SET", "appendonly", "x"), "ERR Invalid argument 'x' for CONFIG SET"),
        (("SET", "hz", "501"), "ERR Invalid argument '501' for CONFIG SET 'hz'"),
        (("SET", "hz", "0"), "ERR Invalid argument '0' for CONFIG SET 'hz'"),
        (("SET", "hz", ""), "ERR Invalid argument '' for CONFIG SET 'hz'"),
        (("SET", "loglevel", "loud"), "ERR Invalid argument 'loud' for CONFIG SET"),
        (("SET", "maxmemory-policy", "lru"), "ERR Invalid argument 'lru' for CONF"),
        (("SET", "timeout", "5"), "ERR Invalid argument '5' for CONFIG SET"),
        (("SET", "x"), "ERR Wrong number of arguments for CONFIG SET"),
        (("NO",), "ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"),
    ],
)
def test_what_cannot_be_set_is_refused(client, words, why):
    answer = client.ask("CONFIG", *words)
    assert isinstance(answer, Refused)
    assert answer.startswith(why)


def test_what_alone_would_pass_maxmemory_is_refused(client):
    before = client.ask("CONFIG", "GET", "maxmemory")[1]
    client.ask("CONFIG", "SET", "maxmemory", 300_000)
    try:
        for words in (["ADDJOB", "q"], ["RQ.PUSH", "k"], ["QADD", "e", 60]):
            large = [*words, "x" * 400_000, *([0] if words[0] == "ADDJOB" else [])]
            assert client.ask(*large).startswith("OOM "), words[0]
        many = ["x"] * 600  # each counts for 600 bytes
        assert client.ask("RQ.PUSH", "k", *many).startswith("OOM ")
        assert client.ask("RQ.PUSH", "k", "x" * 200_000)
    finally:
        client.ask("CONFIG", "SET", "maxmemory", before)
        client.ask("DEL", "k")


def test_maxmemory_holds_as_soon_as_it_is_set(client):
    client.ask("CONFIG", "SET", "maxmemory", 1)
    refused = [client.ask("RQ.PUSH", "k", "x") for _ in range(3)]
    client.ask("CONFIG", "SET", "maxmemory", "1gb")
    assert refused[-1].startswith("OOM")
    assert len(client.ask("RQ.PUSH", "k", "x")) == 1


def test_what_is_set_is_kept_by_rewrite_alone(tmp_path):
    with broker_in(tmp_path / "root", maxclients=50) as broker:
        client = broker.start()
        client.ask("CONFIG", "SET", "maxclients", 60)
        client = broker.restart()
        assert client.ask("CONFIG", "GET", "maxclients")[1] == b"50"
        client.ask("CONFIG", "SET", "maxclients", 70)
        assert client.ask("CONFIG", "REWRITE") == "OK"
        kept = json.loads((broker.directory / "config" / "broker.json").read_text())
        assert kept == {"enabled": True, "port": broker.port, "maxclients": 70}
        client = broker.restart()
        assert client.ask("CONFIG", "GET", "maxclients")[1] == b"70"
        once = client.ask("CONFIG", "GET", "aof-enqueue-jobs-once")[1]
        assert once == b"no", "its one restart is over"


@pytest.mark.parametrize(
    "words",
    [
        ["CONFIG", "GET", "x" * 129],
        ["CONFIG", "GET", *["x*"] * 17],
        ["COMMAND", "LIST", "FILTERBY", "PATTERN", "x" * 129],
        ["COMMAND", "INFO", *["ping"] * 1001],
    ],
)
def test_a_pattern_that_would_hold_all_others_up_is_refused(client, words):
    assert " at most " in client.ask(*words)


def test_a_node_without_a_root_keeps_what_is_set_too(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        client.ask("CONFIG", "SET", "aof-enqueue-jobs-once", "yes")
        client.ask("CONFIG", "SET", "maxclients", 70)
        client.ask("CONFIG", "SET", "requirepass", SECRET)
        assert client.ask("AUTH", SECRET) == "OK"
        assert client.ask("CONFIG", "REWRITE") == "OK"
        job = client.ask("ADDJOB", "q", "once", 0, "RETRY", 0)
        client.send("SHUTDOWN", "REWRITE-AOF")
        with pytest.raises(EOFError):
            client.answer()
        client = broker.start()
        assert client.ask("QLEN", "q").startswith("NOAUTH")
        assert client.ask("AUTH", SECRET) == "OK"
        assert client.ask("CONFIG", "GET", "maxclients")[1] == b"70"
        assert client.ask("GETJOB", "FROM", "q") == [[b"q", job.encode(), b"once"]]


def test_a_password_locks_who_is_there_and_is_shown_to_nobody(tmp_path):
    with broker_in(tmp_path / "root", slowlog_slower=0) as broker:
        client, other, watcher = broker.start(), broker.client(), broker.own()
        assert watcher.ask("MONITOR") == "OK"
        assert client.ask("CONFIG", "SET", "requirepass", SECRET) == "OK"
        for each in (client, other):
            assert each.ask("PING").startswith("NOAUTH")
            assert each.ask("HELLO", 3, "AUTH", "default", SECRET)[b"proto"] == 3
        assert client.ask("CONFIG", "GET", "requirepass") == {
            b"requirepass": b"(hidden)"
        }
        assert client.ask("CONFIG", "REWRITE") == "OK"
        watched = "\n".join(watcher.answer() for _ in range(4))
        slow = client.ask("SLOWLOG", "GET", -1)
        kept = (broker.directory / "config" / "broker.json").read_text()
        for told in (watched, repr(slow), kept, broker.told()):
            assert SECRET not in told
        assert '"CONFIG" "SET" "requirepass" "(hidden)"' in watched
        watcher.close()
        client = broker.restart()
        assert client.ask("PING").startswith("NOAUTH")
        assert client.ask("AUTH", SECRET) == "OK"
        assert client.ask("CONFIG", "SET", "requirepass", "") == "OK"
        assert broker.client().ask("PING") == "PONG"


@pytest.mark.parametrize(
    "words",
    [
        ["MONITOR"],
        ["GETJOB", "FROM", "q"],
        ["RQ.POP", "BLOCK", -1, "q"],
        ["QGET", "q", "g", "BLOCK", 60],
    ],
    ids=lambda words: words[0],
)
def test_a_password_sends_away_who_waits_or_watches(tmp_path, words):
    with broker_in(tmp_path / "root") as broker:
        client, other = broker.start(), broker.client()
        other.send(*words)
        wait_until(
            lambda: f"cmd={words[0].lower()} ".encode() in client.ask("CLIENT", "LIST")
        )
        assert client.ask("CONFIG", "SET", "requirepass", SECRET) == "OK"
        assert client.ask("AUTH", SECRET) == "OK"
        client.ask("ADDJOB", "q", "body", 0)
        client.ask("RQ.PUSH", "q", "body")
        client.ask("QADD", "q", 60, "body")
        assert "body" not in repr(until_closed(other))
        assert client.ask("QLEN", "q") == 1


def test_whoever_sets_a_password_watches_no_more(tmp_path):
    with broker_in(tmp_path / "root", maxclients=9) as broker:
        watcher, own = broker.start(), broker.own()
        assert watcher.ask("MONITOR") == "OK"
        watcher.send("CONFIG", "SET", "requirepass", SECRET)
        assert "CONFIG" in watcher.answer()
        assert watcher.answer() == "OK"
        own.ask("ADDJOB", "q", "body", 0)
        assert int(facts(own)["monitors"]) == 0
        assert watcher.ask("PING").startswith("NOAUTH")
        own.close()


# ---- INFO


def test_info_tells_what_is(client, other):
    told = facts(client, "all")
    assert told["appendfsync"] == "always"
    assert told["aof_last_write_status"] == "ok"
    assert int(told["connected_clients"]) == 2
    assert int(told["used_memory_rss"]) > 1024**2
    assert int(told["total_commands_processed"]) > 0
    assert told["cmdstat_config"].startswith("calls=")
    assert "cmdstat_config" not in facts(client)
    assert client.ask("CONFIG", "RESETSTAT") == "OK"
    assert int(facts(client, "stats")["total_commands_processed"]) < 5
    other.socket.sendall(b"*1\r\n$900\r\n" + b"x" * 500)
    wait_until(lambda: int(facts(client, "clients")["client_biggest_input_buf"]) > 499)
    assert int(facts(client, "clients")["client_longest_output_list"]) == 0
    assert int(facts(client, "clients")["blocked_clients"]) == 0
    other.socket.sendall(b"x" * 400 + b"\r\n")
    assert other.answer().startswith("ERR unknown command")


def test_info_counts_commands_by_the_second(client):
    for _ in range(400):
        client.ask("PING")
    wait_until(lambda: int(facts(client, "stats")["instantaneous_ops_per_sec"]) > 2)


# ---- CLIENT


def test_clients_are_listed_named_and_ended(client, other):
    number = other.ask("CLIENT", "ID")
    assert other.ask("CLIENT", "SETNAME", "sick") == "OK"
    assert other.ask("CLIENT", "SETNAME", "two words").startswith("ERR Client names")
    assert other.ask("CLIENT", "SETNAME", "x" * 257).startswith(
        "ERR a name has at most"
    )
    assert other.ask("CLIENT", "SETINFO", "lib-name", "mine") == "OK"
    assert other.ask("CLIENT", "NO-EVICT", "on") == "OK"
    (line,) = client.ask("CLIENT", "LIST", "ID", number).decode().splitlines()
    shown = dict(word.split("=", 1) for word in line.split())
    assert (shown["name"], shown["lib-name"], shown["cmd"]) == (
        "sick",
        "mine",
        "client",
    )
    assert client.ask("CLIENT", "KILL", "ID", number + 1000) == 0
    assert client.ask("CLIENT", "KILL", "1.2.3.4:5") == "ERR No such client"
    assert client.ask("CLIENT", "KILL", shown["addr"]) == "OK"
    with pytest.raises((EOFError, ConnectionError)):
        other.ask("PING")
    assert client.ask("CLIENT", "KILL", "TYPE", "normal") == 0
    assert client.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no") == 1
    with pytest.raises((EOFError, ConnectionError)):
        client.ask("PING")


def test_many_clients_are_listed_in_slices_and_answers_keep_their_order(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        crowd = [broker.client() for _ in range(700)]
        assert [each.ask("PING") for each in crowd] == ["PONG"] * len(crowd)
        client.socket.sendall(command("CLIENT", "LIST") + command("PING"))
        numbers = [line.split()[0] for line in client.answer().decode().splitlines()]
        assert client.answer() == "PONG"
        assert len(set(numbers)) == len(numbers) == 701


def test_jobs_that_wait_for_an_ended_client_are_for_others(client, other):
    number = other.ask("CLIENT", "ID")
    other.send("GETJOB", "FROM", "ended")
    wait_until(lambda: int(facts(client)["blocked_clients"]) == 1)
    assert client.ask("CLIENT", "KILL", "ID", number) == 1
    job_id = client.ask("ADDJOB", "ended", "x", 0, "RETRY", 0).encode()
    assert client.ask("GETJOB", "NOHANG", "FROM", "ended")[0][1] == job_id


def test_a_pause_lets_all_wait_and_its_end_lets_them_go_on(client, other):
    assert client.ask("CLIENT", "PAUSE", 300) == "OK"
    began = time.monotonic()
    other.send("PING", "after")
    assert other.answer() == b"after"
    assert time.monotonic() - began > 0.2
    assert client.ask("CLIENT", "PAUSE", "x").startswith("ERR timeout is not")
    assert client.ask("CLIENT", "UNPAUSE") == "OK"


def test_answers_that_a_client_does_not_want_do_not_come(client):
    client.send("CLIENT", "REPLY", "OFF")
    client.send("PING", "one")
    assert client.ask("CLIENT", "REPLY", "ON") == "OK"
    client.send("CLIENT", "REPLY", "SKIP")
    client.send("PING", "two")
    assert client.ask("PING", "three") == b"three"


# ---- MONITOR, SLOWLOG, LATENCY


def test_who_watches_sees_commands_but_no_whole_bodies(client, other):
    assert client.ask("MONITOR") == "OK"
    other.ask("ADDJOB", "q", b'a"\xff' + b"x" * 1000, 0)
    line = client.answer()
    assert '"ADDJOB" "q" "a\\"\\xff' in line
    assert "more bytes" in line
    assert len(line) < 400


def test_who_watches_and_does_not_read_is_sent_away(shared, client, other):
    assert other.ask("MONITOR") == "OK"
    words = ["x" * 128] * 30
    for _ in range(8000):
        client.send("PING", *words)
    for _ in range(8000):
        client.answer()
    wait_until(lambda: int(facts(client)["monitors"]) == 0)
    assert "over the output limit" in shared.told()


def test_slow_commands_are_kept_newest_first(client):
    client.ask("CONFIG", "SET", "slowlog-log-slower-than", 0)
    client.ask("SLOWLOG", "RESET")
    client.ask("QLEN", "one")
    client.ask("QLEN", "two")
    assert client.ask("SLOWLOG", "LEN") >= 2
    slow = client.ask("SLOWLOG", "GET", 3)
    assert [entry[3] for entry in slow[1:]] == [[b"QLEN", b"two"], [b"QLEN", b"one"]]
    client.ask("CONFIG", "SET", "slowlog-max-len", 2)
    client.ask("PING")
    assert client.ask("SLOWLOG", "LEN") == 2
    client.ask("CONFIG", "SET", "slowlog-log-slower-than", 10_000)
    assert len(client.ask("SLOWLOG", "GET", -1)) == 2
    assert client.ask("SLOWLOG", "GET", 0) == []
    for number in (-2, "all"):
        answer = client.ask("SLOWLOG", "GET", number)
        assert isinstance(answer, Refused)
        assert "count should be" in answer
    client.ask("CONFIG", "SET", "slowlog-max-len", 128)


def test_spikes_are_kept_when_somebody_wants_them(client):
    assert client.ask("LATENCY", "LATEST") == []
    client.ask("CONFIG", "SET", "latency-monitor-threshold", 1)
    bodies = ["x" * 10_000] * 500
    wait_until(
        lambda: client.ask("RQ.PUSH", "k", *bodies) and client.ask("LATENCY", "LATEST")
    )
    kind, *_ = client.ask("LATENCY", "LATEST")[0]
    assert client.ask("LATENCY", "HISTORY", kind)
    assert b"up to" in client.ask("LATENCY", "DOCTOR")
    assert client.ask("LATENCY", "RESET") >= 1
    client.ask("CONFIG", "SET", "latency-monitor-threshold", 0)


# ---- COMMAND, DEBUG, SHUTDOWN


def test_all_commands_are_told_of(client):
    every = client.ask("COMMAND")
    assert client.ask("COMMAND", "COUNT") == len(every)
    addjob, nothing = client.ask("COMMAND", "INFO", "addjob", "nonsense")
    assert addjob[:8] == [b"addjob", -4, ["write", "denyoom"], 1, 1, 1, ["@write"], []]
    assert nothing is None
    assert {len(entry) for entry in every} == {10}
    keys = ["COMMAND", "GETKEYS"]
    assert client.ask(*keys, "RQ.POP", "BLOCK", 5, "a", "b") == [b"a", b"b"]
    assert client.ask(*keys, "QNOTIFY", "g", 1, "a", "b") == [b"a", b"b"]
    assert client.ask(*keys, "QLEN").startswith("ERR Invalid number of arguments")
    assert client.ask(*keys, "NO").startswith("ERR Invalid command")
    assert client.ask("COMMAND", "GETKEYSANDFLAGS", "QLEN", "a") == [[b"a", ["RO"]]]
    docs = client.ask("COMMAND", "DOCS")
    docs = dict(zip(docs[::2], docs[1::2], strict=True))
    for name, *_ in every:
        assert docs[name][1], f"{name}: its function says what it does"
    assert client.ask("COMMAND", "LIST", "FILTERBY", "PATTERN", "q*len") == [b"qlen"]
    assert client.ask("COMMAND", "NO").startswith("ERR Unknown subcommand")


@pytest.mark.parametrize("words", [("SHUTDOWN", "NOSAVE"), ("SHUTDOWN", "REWRITE-AOF")])
def test_a_shutdown_ends_it_with_all_on_disk(tmp_path, words):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        job_id = client.ask("ADDJOB", "q", "x", 0, "RETRY", 0)
        client.send(*words)
        with pytest.raises((EOFError, ConnectionError)):
            client.answer()
        assert broker.process.wait(20) == 0
        assert broker.start().ask("QPEEK", "q", 1)[0][1] == job_id.encode()


def test_a_rewrite_is_a_snapshot_that_a_start_reads(tmp_path):
    with broker_in(tmp_path / "root", maxclients=9) as broker:
        client = broker.start()
        job_id = client.ask("ADDJOB", "q", "x", 0)
        for _ in range(2):
            assert "rewriting started" in client.ask("BGREWRITEAOF")
        wait_until(lambda: int(facts(client, "persistence")["snapshots"]) >= 1)
        client.send("DEBUG", "RESTART")
        with pytest.raises((EOFError, ConnectionError)):
            client.answer()
        assert broker.process.wait(20) == 0
        assert broker.start().ask("QPEEK", "q", 1)[0][1] == job_id.encode()


# ---- users and their roles


@pytest.fixture(scope="module")
def peopled(tmp_path_factory):
    stored = passwords.make(SECRET)
    users = {
        "vera": {"password": stored, "role": "viewer"},
        "paul": {"password": stored, "role": "producer"},
        "wim": {"password": stored, "role": "worker"},
        "olga": {"password": stored, "role": "operator"},
        "adam": {"password": stored, "role": "admin"},
        "mel": {"password": stored, "role": "operator", "queues": ["mail-*"]},
    }
    path = tmp_path_factory.mktemp("broker") / "root"
    main = {"basic_auth": {"users": users}}
    with broker_in(path, main=main, password=passwords.make("other")) as broker:
        broker.start().close()
        yield broker


def login(broker, name):
    client = Client(broker.port)
    assert client.ask("AUTH", name, SECRET) == "OK"
    return client


ASKED = {
    "viewer": [("QLEN", "q"), ("SHOW", "D-00000000-" + "a" * 24 + "-05a1"), ("INFO",)],
    "producer": [("ADDJOB", "q", "x", 0), ("RQ.PUSH", "k", "x"), ("QADD", "e", 9, "x")],
    "worker": [("GETJOB", "NOHANG", "FROM", "q"), ("RQ.POP", "k"), ("QGET", "e", "g")],
    "operator": [("PAUSE", "q", "none"), ("DELJOB",), ("QFLUSH", "e"), ("DEL", "k")],
    "admin": [
        ("CONFIG", "SET", "maxclients", 9),
        ("DEBUG", "FLUSHALL"),
        ("FLUSHALL",),
        ("MONITOR",),
    ],
}
MAY = {
    "vera": {"viewer"},
    "paul": {"viewer", "producer"},
    "wim": {"viewer", "worker"},
    "olga": {"viewer", "producer", "worker", "operator"},
    "adam": set(ASKED),
}


@pytest.mark.parametrize("name", MAY)
def test_a_role_may_what_it_may_and_no_more(peopled, name):
    client = login(peopled, name)
    for role, asked in ASKED.items():
        for words in asked:
            answer = client.ask(*words)
            refused = isinstance(answer, Refused) and answer.startswith("NOPERM")
            assert refused == (role not in MAY[name]), (words, answer)
    client.close()


def test_who_may_some_queues_learns_nothing_of_others(peopled):
    olga, mel = login(peopled, "olga"), login(peopled, "mel")
    theirs = olga.ask("ADDJOB", "pay-1", "x", 0)
    own = mel.ask("ADDJOB", "mail-1", "x", 0)
    assert mel.ask("GETJOB", "NOHANG", "FROM", "mail-1")[0][1] == own.encode()
    assert mel.ask("ACKJOB", own) == 1
    for words in (
        ("ADDJOB", "pay-1", "x", 0),
        ("GETJOB", "FROM", "mail-1", "pay-1"),
        ("RQ.POP", "COUNT", 1, "pay-1"),
        ("QNOTIFY", "g", 1, "mail-1", "pay-1"),
        ("EXISTS", "mail-1", "pay-1"),
        ("TYPE", "pay-1"),
        ("SHOW", theirs),
        ("ACKJOB", own, theirs),
        ("QSCAN",),
        ("JSCAN",),
        ("QSTATUS",),
        ("BROKER", "QUEUES"),
        ("DISQUE", "INFO"),
    ):
        answer = mel.ask(*words)
        assert isinstance(answer, Refused), words
        assert answer.startswith("NOPERM"), (words, answer)
    assert olga.ask("QLEN", "pay-1") == 1
    assert b"registered_jobs:1" in olga.ask("INFO")
    told = mel.ask("INFO", "all")
    assert b"run_id:" in told
    assert all(
        word not in told for word in (b"jobs", b"clients", b"memory", b"cmdstat")
    )
    for words in ((), ("TYPE", "normal"), ("ID", *range(1, 1000))):
        listed = mel.ask("CLIENT", "LIST", *words).decode().splitlines()
        assert len(listed) == 1, words
        assert " user=mel " in listed[0]
    assert " user=mel " in olga.ask("CLIENT", "LIST").decode()
    olga.close()
    mel.close()


def test_who_watches_and_becomes_somebody_else_watches_no_more(peopled):
    adam, olga = login(peopled, "adam"), login(peopled, "olga")
    assert adam.ask("MONITOR") == "OK"
    assert adam.ask("AUTH", "vera", SECRET).endswith('"AUTH" "(hidden)" "(hidden)"')
    assert adam.answer() == "OK"
    olga.ask("QLEN", "q")
    assert adam.ask("PING") == "PONG"
    adam.close()
    olga.close()
