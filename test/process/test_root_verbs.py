"""Verbs of root on the RQ of another user: they go on as that user, and leave nothing."""

import os
import pty
import subprocess
import tempfile
from pathlib import Path

import pytest
from harness.cli import define
from harness.installation import (
    STRANGER,
    USER,
    as_user,
    call,
    give,
    install,
    owners,
    place_for_all,
)
from harness.ports import free_port
from harness.processes import only_root
from harness.waiting import wait_until

from rq.cli import UNREACHABLE
from rq.cli.verbs import ANCESTOR, VERBS

pytestmark = [pytest.mark.process, pytest.mark.long, only_root]

SCRIPT = '#!/bin/sh\necho "got $RQ_PARAM1"; ls -l ../attach\necho "done fine" >&3\n'


@pytest.fixture(scope="module")
def place():
    with place_for_all("rq-owner-") as path:
        yield path


@pytest.fixture(scope="module")
def code(place):
    return install(place)


@pytest.fixture
def root(place, code):
    """Give a root of USER, installed by USER, its queue `work` not yet made."""
    path = Path(tempfile.mkdtemp(dir=place, prefix="root-"))
    define(path, "work", SCRIPT)
    give(path, USER)
    tool(code, "rq-install", "--root", path, "--port", free_port(), **as_user(USER))
    yield path
    tool(code, "rq", "--root", path, "down", **as_user(USER))


def tool(code, name, *words, **options):
    return call([code / "bin" / name, *words], **options)


def ok(code, *words, **options):
    done = tool(code, "rq", *words, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_all_is_its_users(root):
    foreign = {path: uid for path, uid in owners(root).items() if uid != USER}
    assert foreign == {}


def a_message(code, root):
    """Send a message as the user; return its id, which ends in done."""
    words = ["--root", root, "send", "work", "--id-only", "--wait"]
    return ok(code, *words, **as_user(USER)).strip()


# How each verb is called; what is not here is called bare.
WORDS = {
    "up": ["up", "--no-samples"],
    "send": ["send", "work", "-a", "{secret}", "--wait"],
    "queue": ["queue", "pause", "work"],
    "timer": ["timer", "ls"],
    "router": ["router", "try", "{message}", "--rules", "{rules}"],
    "owed": ["owed", "ls"],
    "relay": ["relay", "ls"],
    "txn": ["txn", "ls"],
    "spark": ["spark", "doctor"],
    "trash": ["trash", "empty", "--yes"],
    "check": ["check", "--fix"],
    "doctor": ["doctor"],
    "config": ["config", "show"],
    "sendmesg": ["sendmesg", "--dest", "work"],
    "prepmesg": ["prepmesg", "--dest", "work"],
    "single_que": ["single_que", "--dest", "work"],
    "verify_rules": ["verify_rules", "--path", "{rules}"],
    "attachmesg": ["attachmesg", "--msg_id", "q/work/{id}", "--pathname", "{secret}"],
    "ack": ["ack", "--all", "work"],
}
OF_A_MESSAGE = ("show", "logs", "wait", "run", "retry", "cancel", "delete")


def words_of(verb, names):
    if verb in OF_A_MESSAGE:
        return [verb, names["id"]]
    if verb in ANCESTOR and verb not in WORDS:
        return [verb, "--msg_id", f"q/work/{names['id']}"]
    return [word.format(**names) for word in WORDS.get(verb, [verb])]


@pytest.fixture
def names(tmp_path):
    """Give files that root alone may read."""
    texts = {
        "secret": "secret",
        "message": '{"dest": "work"}',
        "rules": '{"rules": []}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    return {name: str(tmp_path / name) for name in texts}


def every_verb(code, root, names):
    """Call them all as root; those that stop RQ last."""
    verbs = [verb for verb in (*VERBS, *ANCESTOR) if verb not in ("up", "down")]
    for verb in verbs:
        done = tool(code, "rq", "--root", root, *words_of(verb, names))
        assert "Traceback" not in done.stderr
        assert "Permission" not in done.stdout + done.stderr, (verb, done.stderr)
        assert "permission" not in done.stderr, (verb, done.stderr)
        assert_all_is_its_users(root)


@pytest.mark.slow
def test_every_verb_of_root_on_a_stopped_rq_leaves_all_to_its_user(code, root, names):
    ok(code, "--root", root, "up", "--no-samples", **as_user(USER))
    msg_id = a_message(code, root)
    ok(code, "--root", root, "down", **as_user(USER))
    every_verb(code, root, names | {"id": msg_id})
    ok(code, "--root", root, "up", "--no-samples", **as_user(USER))
    a_message(code, root)


@pytest.mark.slow
def test_every_verb_of_root_on_a_running_rq_leaves_all_to_its_user(code, root, names):
    ok(code, "--root", root, "up", "--no-samples", **as_user(USER))
    every_verb(code, root, names | {"id": a_message(code, root)})
    ok(code, "--root", root, "queue", "resume", "work", **as_user(USER))
    a_message(code, root)


@pytest.mark.slow
def test_what_root_starts_runs_as_the_user_whose_rq_it_is(code, place):
    root = Path(tempfile.mkdtemp(dir=place, prefix="root-"))
    define(root, "work", "#!/bin/sh\nid -u; echo done >&3\n")
    give(root, USER)
    done = tool(code, "rq-install", "--root", root, "--port", free_port())
    assert done.returncode == 0, done.stderr
    for start in (["rq-mgr", "start"], ["rq-mgr", "restart"], ["rq", "up"]):
        assert tool(code, *start, "--root", root).returncode == 0
        assert_all_is_its_users(root)
    msg_id = ok(code, "--root", root, "send", "work", "--id-only", "--wait").strip()
    assert f"\n{USER}\n" in ok(code, "--root", root, "logs", msg_id)
    ok(code, "--root", root, "down")
    assert_all_is_its_users(root)


@pytest.mark.slow
def test_an_attachment_that_root_alone_may_read_is_sent(code, root, names):
    ok(code, "--root", root, "up", "--no-samples")
    twice = ["-a", names["secret"]]
    words = ["send", "work", *twice, "--id-only", "--wait"]
    msg_id = ok(code, "--root", root, *words, cwd=Path(names["secret"]).parent).strip()
    attached = root.glob(f"queue/work/done/*/*/*/{msg_id}/attach/secret")
    assert [one.read_text() for one in attached] == ["secret"]


def test_rules_that_root_alone_may_read_are_tried(code, root, names):
    words = ["router", "try", names["message"], "--rules", names["rules"]]
    assert "rule    default" in ok(code, "--root", root, *words)


@pytest.mark.slow
def test_a_user_whose_rq_it_is_not_gets_one_sentence(code, root):
    (root / "config").chmod(0o700)
    for words in (["rq", "status"], ["rq-mgr", "start"], ["rq", "up"], ["rq-init"]):
        done = tool(code, *words, "--root", root, **as_user(STRANGER))
        assert done.returncode == 1 or done.returncode == 4
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "permission denied: this is the RQ of 4321" in done.stderr


@pytest.mark.slow
def test_a_root_of_several_users_is_refused_in_one_sentence(code, root):
    ok(code, "--root", root, "up", "--no-samples")
    ok(code, "--root", root, "down")
    os.chown(root / "queue", STRANGER, STRANGER)
    done = tool(code, "rq", "--root", root, "check", "--fix")
    os.chown(root / "queue", USER, USER)
    assert done.returncode == 4
    assert f"{root}/queue of {STRANGER}" in done.stderr
    assert "chown -R" in done.stderr
    assert_all_is_its_users(root)


def test_code_that_the_user_cannot_read_is_one_sentence(code, root):
    code.chmod(0o700)
    done = tool(code, "rq", "--root", root, "status")
    code.chmod(0o755)
    assert done.returncode == 4
    assert "is not readable for 4321, whose RQ this is" in done.stderr


@pytest.mark.slow
def test_nothing_of_roots_environment_reaches_the_rq_of_another(code, root):
    secrets = {"AWS_SECRET": "s3cret", "HOME": "/root", "TMPDIR": "/root"}
    ok(code, "--root", root, "up", "--no-samples", env={**os.environ, **secrets})
    pid = (root / "config/queuemgr.pid").read_text().strip()
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"s3cret" not in environ
    assert b"/root" not in environ
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"Uid:\t{USER}\t{USER}\t{USER}\t{USER}\n" in status
    assert f"Gid:\t{USER}\t{USER}\t{USER}\t{USER}\n" in status
    assert "Groups:\t \n" in status


@pytest.mark.slow
def test_the_supervisor_in_the_foreground_becomes_the_user_too(code, root):
    done = tool(code, "rq-mgr", "start", "--root", root, **as_user(USER))
    assert done.returncode == 0, done.stderr
    again = tool(code, "rq-init", "--root", root)
    assert "already runs" in again.stderr
    assert_all_is_its_users(root)


def test_a_terminal_and_a_pipe_of_root_stay_its_own(code, root):
    ours, theirs = pty.openpty()
    read, write = os.pipe()
    os.write(write, b"correct horse\n")
    os.close(write)
    try:
        done = tool(code, "rq", "--root", root, "passwd", "ann", stdin=read)
        assert '"ann"' in done.stdout
        words = [code / "bin/rq", "--root", root, "status"]
        ended = call(words, capture_output=False, stdout=theirs).returncode
        assert ended == UNREACHABLE  # it does not run
        assert b"RQ" in os.read(ours, 65536)
    finally:
        for fd in (read, ours, theirs):
            os.close(fd)


@pytest.mark.slow
def test_a_deep_root_is_reached_by_root_as_well(code, place):
    """Its sockets are reached through /proc/self/fd."""
    top = Path(tempfile.mkdtemp(dir=place))
    root = top / ("deep" * 20) / ("er" * 20)
    root.mkdir(parents=True)
    give(top, USER)
    assert (
        tool(code, "rq-install", "--root", root, "--port", free_port()).returncode == 0
    )
    ok(code, "--root", root, "up", "--no-samples")
    ok(code, "--root", root, "status")
    ok(code, "--root", root, "down")
    assert_all_is_its_users(root)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["-h", "--help"])
def test_a_value_that_reads_like_a_cry_for_help_lets_no_verb_run_as_root(
    code, root, word
):
    done = tool(code, "rq", "--root", root, "relay", "allow", "--", word, "host:1")
    assert done.returncode == 0, done.stderr
    assert_all_is_its_users(root)
    assert "host:1" in (root / "config/peers.json").read_text()


@pytest.mark.slow
def test_nothing_that_a_start_makes_is_open_to_others_whatever_the_umask(code, root):
    ok(code, "--root", root, "up", "--no-samples", **as_user(USER), umask=0)
    ok(code, "--root", root, "down", **as_user(USER))
    made = [*(root / "config").rglob("*"), *(root / "log").iterdir()]
    assert {path.name: oct(path.stat().st_mode) for path in made
            if path.stat().st_mode & 0o027} == {}  # fmt: skip


@pytest.mark.slow
def test_what_root_has_open_does_not_go_to_a_supervisor_of_another_user(
    code, root, names
):
    with open(names["secret"], "a") as secret:
        words = [code / "bin/rq-mgr", "--root", root, "run"]
        supervisor = subprocess.Popen(words, pass_fds=(secret.fileno(),), cwd="/")
    try:
        wait_until((root / "config/queuemgr.sock").exists, 60)
        place = f"/proc/{supervisor.pid}/fd"
        assert os.stat(f"/proc/{supervisor.pid}").st_uid == USER
        # What it has open for a moment may be gone before it is looked at.
        opened = wait_until(
            lambda: [os.readlink(f"{place}/{fd}") for fd in os.listdir(place)]
        )
    finally:
        supervisor.terminate()
        supervisor.wait(60)
    assert names["secret"] not in opened
