"""The command line as programs see it: exit codes, streams, no traceback, no daemon."""

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from harness import ancestor
from harness.checkout import CHECKOUT
from harness.cli import rq, run

from rq.config import files
from rq.layout import Root
from rq.rpc import client

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def old_root(tmp_path_factory):
    return ancestor.build(tmp_path_factory.mktemp("old") / "root")


def test_help_loads_neither_asyncio_nor_orjson():
    """So it is there in a tenth of a second."""
    seen = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from rq.cli import main; main(['--help']);"
            "print([m for m in ('asyncio', 'orjson', 'argparse') if m in sys.modules])",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert seen.stdout.splitlines()[-1] == "[]"


def every_verb():
    from rq.cli.verbs import ANCESTOR, VERBS

    return [*VERBS, *ANCESTOR]


@pytest.mark.parametrize("verb", every_verb())
def test_each_verb_tells_its_usage_and_exits_with_0(verb, tmp_path):
    done = rq(verb, "-h" if verb in ("up", "send") else "--help", root=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: rq {verb}")
    assert done.stderr == ""


@pytest.mark.parametrize("verb", ["show", "logs", "wait"])
def test_a_queue_in_place_of_an_id_is_told_how_to_find_one(old_root, verb):
    done = rq(verb, "work", root=old_root)
    assert done.returncode == 2
    assert "work is a queue, not a message: `rq ls work`" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 2),
        (["nosuchverb"], 2),
        (["ls", "--nosuchoption"], 2),
        (["ls", "--limit", "0"], 2),
        (["logs", ancestor.FAILED, "--tail", "-1"], 2),
        (["send"], 2),
        (["show", "not-an-id"], 2),
        (["show", "20990101.0000.00.000.1"], 3),
        (["ls", "nosuchqueue"], 3),
        (["send", "nosuchqueue"], 3),
        (["send", "work"], 6),
        (["queue", "pause", "work"], 6),
        (["queue", "pause", "work", "nosuchqueue"], 3),
        (["cancel", ancestor.WAITING, "--yes"], 6),
        (["wait", ancestor.DONE], 0),
        (["wait", ancestor.FAILED], 8),
        (["wait", ancestor.WAITING], 6),
        (["state", "--msg_id", f"q/work/{ancestor.WAITING}"], 1),
        (["sendmesg"], 1),
        (["sendmesg", "--dest", "http://x/q/y"], 1),
        (["statusmesg", "--msg_id", "rubbish"], 1),
    ],
)
def test_each_failure_has_its_exit_code_and_one_sentence(old_root, words, code):
    done = rq(*words, root=old_root)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    if code not in (0, 8):
        assert done.stdout == ""
        assert done.stderr != ""


READING = [
    ["ls"],
    ["ls", "--json"],
    ["show", ancestor.FAILED],
    ["show", "20250301.0902"],
    ["show", f"work/{ancestor.DONE_WITH_FILE}"],
    ["show", f"http://any.example.com:1/x/q/work/{ancestor.RELAYED}"],
    ["show", ancestor.ACKNOWLEDGED],
    ["logs", ancestor.FAILED],
    ["queue", "ls"],
    ["timer", "ls"],
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_verbs_work_with_rq_stopped_and_say_so(old_root, words):
    before = ancestor.everything(old_root)
    done = rq(*words, root=old_root)
    assert done.returncode == 0, done.stderr
    assert done.stdout != ""
    assert done.stderr.count("RQ is not running: this is read from the folders") == 1
    assert ancestor.everything(old_root) == before


def test_status_says_by_its_exit_code_that_rq_is_stopped(old_root):
    before = ancestor.everything(old_root)
    done = rq("status", root=old_root)
    assert done.returncode == 6
    assert "RQ is not running in" in done.stdout
    assert "work has a message that failed" in done.stdout
    assert ancestor.everything(old_root) == before


def test_a_message_of_the_ancestor_is_shown_where_it_lies(old_root):
    for msg_id, (queue, place) in ancestor.ANCESTOR.items():
        found = json.loads(rq("show", msg_id, "--json", root=old_root).stdout)
        assert (found["queue"], found["msg_id"]) == (queue, msg_id)
        assert found["state"] == place.partition("/")[0]
        assert found["path"].endswith(place)
        assert found["invoice"] == {"kept": True}
        assert set(found["story"]) == {"what", "why", "todo"}


def test_a_file_the_ancestor_attached_is_shown_with_its_digest(old_root):
    shown = rq("show", ancestor.DONE_WITH_FILE, "--json", root=old_root).stdout
    found = json.loads(shown)["_attachments"]["cat photo.jpg"]
    assert found["sha256"] == ancestor.digest_of_attachment()
    assert found["size"] == len(ancestor.ATTACHED)


def test_counts_are_read_from_the_folders_too(old_root):
    rows = json.loads(rq("queue", "ls", "--json", root=old_root).stdout)
    counts = {row["name"]: row["counts"] for row in rows}
    assert counts["work"]["que"] == 3
    assert counts["work"]["done"] == 2
    assert counts["work"]["err"] == 1
    assert {row["name"]: row["status"] for row in rows} == {
        "resting": "PAUSE",
        "stopped": "DOWN",
        "work": "-",
    }


def test_a_beginning_that_fits_several_messages_names_them(old_root):
    done = rq("show", "20250301.10", root=old_root)
    assert done.returncode == 2
    assert "5 messages begin with" in done.stderr
    assert "work/2025" in done.stderr


@pytest.mark.parametrize(
    ("log", "lines", "shown"),
    [
        ("a\nb\n", 1, "b\n"),
        ("a\nb", 1, "b"),
        ("a\nb", 2, "a\nb"),
        ("a\n\n", 1, "\n"),
        ("\na", 5, "\na"),
        ("a\nb", 0, ""),
        ("", 3, ""),
    ],
)
def test_the_tail_of_a_log_is_its_last_lines_ended_or_not(tmp_path, log, lines, shown):
    root = ancestor.build(tmp_path / "root")
    path = Path(rq("logs", ancestor.FAILED, "--path", root=root).stdout.strip())
    path.parent.mkdir(exist_ok=True)
    path.write_text(log)
    done = rq("logs", ancestor.FAILED, "--tail", lines, root=root)
    assert (done.returncode, done.stdout) == (0, shown)


def test_a_reader_that_leaves_early_costs_no_traceback(old_root):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rq.cli", "--root", str(old_root), "ls", "--json"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
    finally:
        os.close(writing)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def closed(root, what, *words):
    """Run rq as `rq … >&-` of a shell does; return its exit code and what it said."""
    shell = f'exec "$@" {what}'
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "rq.cli"]
    done = subprocess.run(
        [*command, "--root", str(root), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("what", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_descriptors_that_are_closed_do_no_harm(old_root, what):
    code, said = closed(old_root, what, "ls")
    assert code == 0, said
    assert "Error" not in said


@pytest.mark.parametrize("words", [("status",), ("ls", "--json"), ("--help",)])
def test_output_that_cannot_be_written_is_one_sentence(old_root, words):
    code, said = closed(old_root, ">/dev/full", *words)
    assert code == 1
    assert "No space left on device" in said
    assert "Exception" not in said


def in_a_terminal(root, *words, env=None):
    """Run rq with a terminal as its output; return what that would show."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rq.cli", "--root", str(root), *words],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), **(env or {})},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux says EIO when the last writer has left
            break
        if not data:
            break
        shown += data
    os.close(ours)
    assert process.wait(30) == 0
    return shown


def test_colours_are_for_terminals_that_want_them(old_root):
    assert b"\033[" in in_a_terminal(old_root, "ls")
    assert b"\033[" not in in_a_terminal(old_root, "ls", env={"NO_COLOR": "1"})
    assert "\033[" not in rq("ls", root=old_root).stdout


def test_what_a_script_wrote_cannot_move_the_cursor_in_a_table(tmp_path):
    root = ancestor.build(tmp_path / "root")
    status = root / "queue/work" / ancestor.ANCESTOR[ancestor.FAILED][1] / "status"
    status.write_text(json.dumps({"job_status": "\033[2J\rgone\nrow"}))
    shown = rq("ls", root=root).stdout
    assert "\033" not in shown
    assert "<U+001B>[2J<U+000D>gone<U+000A>row" in shown


def test_an_unforeseen_failure_is_one_sentence(tmp_path):
    root = ancestor.build(tmp_path / "root")
    (root / "config/config.json").write_text("{")
    done = rq("config", "show", root=root)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "config.json is not JSON" in done.stderr


# ---- rq-install


def test_install_writes_safe_values_and_refuses_a_second_time(tmp_path):
    first = run("rq.cli.install", root=tmp_path)
    assert first.returncode == 0
    bundled = {one.parent.name for one in CHECKOUT.glob("rq/bundled/*/run")}
    if importlib.util.find_spec("pyspark") is None:
        bundled -= {"spark-history", "spark-work"}
    assert first.stdout.splitlines() == [
        f"Installed queue {one}" for one in sorted(bundled)
    ]
    written = json.loads((tmp_path / "config/config.json").read_text())
    assert written["addr"] == written["host"] == "127.0.0.1"
    assert written["allow_new_queue"] is False
    assert written["worker_env"]["PATH"]
    second = run("rq.cli.install", root=tmp_path)
    assert (second.returncode, second.stdout) == (1, "Already installed\n")
    forced = run("rq.cli.install", "--force", "--port", "4444", root=tmp_path)
    assert forced.returncode == 0
    assert json.loads((tmp_path / "config/config.json").read_text())["port"] == 4444


def test_install_refuses_what_the_config_would_refuse(tmp_path):
    done = run("rq.cli.install", "--tmpdir", "/nonexistent", root=tmp_path)
    assert done.returncode == 2
    assert "tmpdir" in done.stderr
    assert not (tmp_path / "config/config.json").exists()


# ---- check_rq


class Server(ThreadingHTTPServer):
    """Speaks the text routes of a running RQ; a queue of None is a dead one."""

    daemon_threads = True
    queues: dict
    verdict = None  # as the Ruby RQ, which gives none


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        queues = self.server.queues
        if self.path == "/api/v1/verdict":
            view = self.server.verdict
            self.answer(*((404, "") if view is None else (200, json.dumps(view))))
            return
        if self.path == "/q.txt":
            self.answer(200, "".join(f"q/{name}.txt\n" for name in queues) + "\n")
            return
        values = queues.get(self.path.removeprefix("/q/").removesuffix(".txt"))
        if values is None:
            self.answer(500, "dead")
        else:
            self.answer(200, "\n\n".join(f"{k}: {v}" for k, v in values.items()))

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def web():
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def a_queue(**values):
    counts = dict.fromkeys(("prep", "que", "run", "done", "err", "relayed"), 0)
    return {"status": "UP", "uptime": 5, **counts, **values}


@pytest.mark.parametrize(
    ("queues", "code", "said"),
    [
        ({"a": a_queue()}, 0, "OK: 1 queue"),
        ({"a": a_queue(que=24)}, 0, "OK: 1 queue"),
        ({"a": a_queue(que=20, run=5)}, 1, "WARNING: a has 25 messages"),
        ({"a": a_queue(que=40)}, 2, "CRITICAL: a has 40 messages"),
        ({"a": a_queue(err=1)}, 2, "CRITICAL: a has 1 in err"),
        ({"a": a_queue(done=3000)}, 1, "WARNING: a has 3000 done"),
        ({"a": a_queue(relayed=3500)}, 2, "CRITICAL: a has 3500 relayed"),
        ({"a": {"status": "DOWN"}}, 2, "CRITICAL: a is DOWN"),
        (
            {"a": a_queue(que=50, err=1, done=3100), "b": a_queue(que=30)},
            2,
            "CRITICAL: a has 1 in err, a has 50 messages, a has 3100 done, "
            "b has 30 messages",
        ),
        ({"a": None}, 2, "CRITICAL: "),
    ],
)
def test_check_rq_tells_the_worst_of_an_rq_without_verdict(web, queues, code, said):
    web.queues = queues
    port = web.server_address[1]
    done = run("rq.cli.check_rq", "-s", "127.0.0.1", "-p", port)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(said)


def test_check_rq_takes_its_port_from_the_environment_and_limits_from_t(web):
    web.queues = {"a": a_queue(que=3)}
    port = str(web.server_address[1])
    words = ["-s", "127.0.0.1", "-t", "1:9:5:6", "-d"]
    done = run("rq.cli.check_rq", *words, env={"RQ_PORT": port})
    assert done.returncode == 1
    assert "a: status=UP uptime=5" in done.stdout


def trouble(fault, level, **more):
    texts = {"who": "a", "said": "is so", "why": "", "todo": "", **more}
    return {"fault": fault, "level": level, **texts}


def view(*troubles, **figures):
    zeros = {"queues": 2, "failed": 0, "oldest_due_age": 0.0}
    return {"troubles": list(troubles), "figures": {**zeros, **figures}}


FAILED = trouble("failed", "CRITICAL", said="has 3 messages that failed")


@pytest.mark.parametrize(
    ("seen", "words", "code", "said"),
    [
        (view(), [], 0, "OK: 2 queues | queues=2 failed=0 oldest_due_age=0s\n"),
        (view(trouble("sample", "OK")), [], 0, "OK: 2 queues | "),
        (view(trouble("disk_full", "CRITICAL", why="x|y")), [], 2, "CRITICAL: a is so: x/y | "),
        (view(trouble("paused", "WARNING")), [], 1, "WARNING: a is so | "),
        (view(FAILED, failed=3), [], 2, "CRITICAL: a has 3 messages that failed"),
        (view(FAILED, failed=3), ["--errors", "3:9"], 1, "WARNING: 3 messages failed"),
        (view(FAILED, failed=3), ["--errors", "4:9"], 0, "OK: 2 queues"),
        (view(oldest_due_age=700), ["--age", "10m:2h"], 1, "WARNING: a message is overdue"),
        (view(oldest_due_age=700), ["--age", "5m:10m"], 2, "CRITICAL: a message is overdue"),
        (view(), ["-t", "3:9:9:9"], 1, "WARNING: q has 3 messages | "),
        (view(), ["--errors", "x"], 3, "UNKNOWN: --errors x: say WARNING:CRITICAL"),
        (view(), ["--wrong"], 3, ""),
    ],
)  # fmt: skip
def test_check_rq_tells_the_verdict_and_what_the_operator_wants_told(
    web, seen, words, code, said
):
    web.queues, web.verdict = {"q": a_queue(que=3)}, seen
    port = str(web.server_address[1])
    done = run("rq.cli.check_rq", "-s", "127.0.0.1", "-p", port, *words)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.startswith(said)


def test_check_rq_gives_each_trouble_beyond_the_first_a_line(web):
    many = [trouble("silent", "CRITICAL", who=f"q{number}") for number in range(6)]
    web.queues, web.verdict = {}, view(trouble("lag", "WARNING"), *many)
    port = str(web.server_address[1])
    done = run("rq.cli.check_rq", "-s", "127.0.0.1", "-p", port)
    first, *rest = done.stdout.splitlines()
    assert first.startswith(
        "CRITICAL: q0 is so, q1 is so, q2 is so, q3 is so, and 3 more | "
    )
    assert rest == ["CRITICAL: q4 is so", "CRITICAL: q5 is so", "WARNING: a is so"]


def test_check_rq_calls_an_unreachable_rq_critical():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        done = run("rq.cli.check_rq", "-s", "127.0.0.1", "-p", port)
    assert done.returncode == 2
    assert done.stdout.startswith("CRITICAL: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("port", ["x", "garbled"])
def test_check_rq_calls_what_is_no_web_critical(port):
    """And not a warning, which is what 1 means there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        talk = threading.Thread(target=garble, args=(server,))
        if port == "garbled":
            talk.start()
            port = server.getsockname()[1]
        done = run("rq.cli.check_rq", "-s", "127.0.0.1", "-p", port)
        if talk.ident:
            talk.join()
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("CRITICAL: ")


def garble(server):
    line, _ = server.accept()
    with line:
        line.recv(4096)
        line.sendall(b"+PONG\r\n")


# ---- down


@pytest.mark.slow
def test_down_does_not_call_a_supervisor_that_hangs_stopped(tmp_path):
    root = Root(tmp_path)
    files.make_root(root)
    with contextlib.closing(client.listen(root.supervisor_socket)):
        done = rq("down", root=tmp_path)
    assert done.returncode == 7, done.stdout
    assert "not running" not in done.stdout
    assert len(done.stderr.splitlines()) == 1


# ---- doctor


@pytest.mark.slow
def test_doctor_measures_and_leaves_nothing_behind(old_root):
    before = ancestor.everything(old_root)
    found = json.loads(rq("doctor", "--json", root=old_root).stdout)
    assert found["speed"]["sync_p50"] > 0
    assert found["speed"]["folders"] > 0
    assert found["file_system"]["room_messages"] > 0
    assert found["promise"]
    assert ancestor.everything(old_root) == before


def test_doctor_warns_of_a_local_host_name_in_production(tmp_path):
    root = tmp_path / "root"
    done = run("rq.cli.install", "--env", "production", "--host=localhost", root=root)
    assert done.returncode == 0
    shown = rq("doctor", "--quick", root=root).stdout
    assert "`host` is localhost" in shown


def test_doctor_names_who_holds_the_port(tmp_path):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        run("rq.cli.install", "--port", port, root=tmp_path)
        shown = rq("doctor", "--quick", root=tmp_path).stdout
    assert f"port {port}, which the web needs, is taken by " in shown
    assert f"(pid {os.getpid()})" in shown
