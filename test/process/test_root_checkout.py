"""Root in the checkout of another, and another in a checkout of root's."""

import json
import os
import pwd
import runpy
import tempfile
from pathlib import Path

import pytest
from harness.checkout import CHECKOUT
from harness.cli import define
from harness.installation import (
    STRANGER,
    USER,
    as_user,
    call,
    give,
    install,
    owners,
    path_without,
    place_for_all,
)
from harness.ports import free_port
from harness.processes import only_root

pytestmark = [pytest.mark.process, only_root]

DAEMON = pwd.getpwnam("daemon")
TELLS = """
import json, os, sys
print(json.dumps({"words": sys.argv[1:], "ids": [*os.getresuid(), *os.getresgid()],
    "groups": os.getgroups(), "environment": dict(os.environ), "said": sys.stdin.read()}))
"""
LAUNCHER = """#!/bin/sh
set -eu
here=$(readlink -f -- "$0")
. "${here%/*}/bootstrap.sh"
launch rq.tells "$@"
"""


@pytest.fixture(scope="module")
def place():
    with place_for_all("rq-checkout-") as path:
        yield path


@pytest.fixture(scope="module")
def code(place):
    """Give a checkout with a launcher that tells what it was given."""
    checkout = install(place)
    (checkout / "rq/tells.py").write_text(TELLS)
    (checkout / "bin/tells").write_text(LAUNCHER)
    (checkout / "bin/tells").chmod(0o755)
    return checkout


@pytest.fixture
def checkout(code):
    """Give it as the checkout of USER."""
    give(code, USER)
    yield code
    give(code, 0)


def told(checkout, *words, **options):
    done = call(
        [checkout / "bin/tells", *words], **{"input": "", **options, "stdin": None}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.slow
def test_root_goes_on_as_the_owner_of_the_checkout_and_says_so(checkout):
    facts, said = told(checkout)
    assert facts["ids"] == [USER] * 6
    assert facts["groups"] in ([], [USER])
    assert said == f"rq: {checkout} belongs to {USER}: going on as {USER}\n"


def test_words_and_input_arrive_as_they_were(checkout):
    words = ["--root", "two  words", "a\nline", "", "*", "-c", "--", "'\"$HOME`\\"]
    facts, _ = told(checkout, *words, input="some input\n")
    assert facts["words"] == words
    assert facts["said"] == "some input\n"


def test_nothing_of_roots_environment_goes_along(checkout):
    secrets = {
        "AWS_SECRET": "s3cret",
        "LINES_OF": "one\ncheckout=/s3cret\nPATH=/s3cret",
        "https_proxy": "http://me:s3cret@proxy:1",
        "RQ_PORT": "1234",
        "NO_COLOR": "1",
        "PIP_INDEX_URL": "https://packages.example/simple",
    }
    facts, _ = told(checkout, env={**os.environ, **secrets})
    environment = facts["environment"]
    assert "s3cret" not in json.dumps(environment)
    assert environment["HOME"] == "/"
    assert environment["USER"] == environment["LOGNAME"] == str(USER)
    assert environment["SUDO_USER"] == "root"
    assert environment["RQ_PORT"] == "1234"
    assert environment["PIP_INDEX_URL"] == secrets["PIP_INDEX_URL"]


@pytest.mark.parametrize("missing", [(), ("setpriv",), ("setpriv", "runuser")])
def test_any_of_the_tools_at_hand_makes_root_the_owner(checkout, place, missing):
    give(checkout, DAEMON.pw_uid, DAEMON.pw_gid)
    directory = place / f"programs-{len(missing)}"
    environment = path_without(directory, *missing)
    words = ["--root", "two  words", "a\nline", "-c", "x"]
    facts, said = told(checkout, *words, env=environment, input="in")
    uid, gid = DAEMON.pw_uid, DAEMON.pw_gid
    assert facts["ids"] == [uid] * 3 + [gid] * 3
    assert facts["groups"] == os.getgrouplist("daemon", gid)
    assert facts["environment"]["HOME"] == DAEMON.pw_dir
    assert (facts["words"], facts["said"]) == (words, "in")
    assert said.endswith("going on as daemon\n")


def test_without_a_tool_for_a_user_that_has_no_name_one_sentence_says_so(
    checkout, place
):
    environment = path_without(place / "none", "setpriv")
    done = call([checkout / "bin/tells"], env=environment)
    assert done.returncode == 1
    assert "install setpriv (package util-linux)" in done.stderr.splitlines()[-1]


def test_code_of_several_users_is_refused_in_one_sentence(checkout):
    os.chown(checkout / "bin/rq", STRANGER, STRANGER)
    done = call([checkout / "bin/tells"])
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert str(USER) in sentence
    assert str(STRANGER) in sentence
    assert "chown -R" in sentence


@pytest.mark.parametrize("name", ["", "bin", "rq", "rq/cli", ".venv", "bin/rq"])
def test_one_part_of_another_is_enough(code, name):
    path = code / name
    os.chown(path, USER, USER)
    try:
        facts, _ = told(code)
    finally:
        os.chown(path, 0, 0)
    assert facts["ids"] == [USER] * 6


def test_code_that_anybody_may_change_is_told_of(code):
    (code / "rq").chmod(0o777)
    _, said = told(code)
    (code / "rq").chmod(0o755)
    assert "warning: anybody may change the code" in said
    assert told(code)[1] == ""


def test_an_owner_who_cannot_reach_the_checkout_is_one_sentence(checkout, place):
    place.chmod(0o700)
    done = call([checkout / "bin/tells"])
    place.chmod(0o755)
    assert done.returncode == 1
    assert f"{USER} cannot run {checkout}/bin/tells" in done.stderr.splitlines()[-1]


def test_tests_that_root_runs_leave_the_checkout_to_its_owner(checkout, place):
    elsewhere = place / "roots"
    elsewhere.touch()
    (checkout / ".cache/inner").mkdir(parents=True)
    (checkout / ".cache/inner/link").symlink_to(elsewhere)
    runpy.run_path(str(CHECKOUT / "test/runner/owners.py"))["give_back"](checkout)
    assert set(owners(checkout).values()) == {USER}
    assert elsewhere.stat().st_uid == 0


# ---- code of root's, RQ of a user


def state_of(directory):
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_uid)
        for path in (directory, *directory.rglob("*"))
    }


@pytest.mark.slow
def test_an_rq_lives_beside_code_that_it_may_only_read(code, place):
    root = Path(tempfile.mkdtemp(dir=place))
    define(root, "work", "#!/bin/sh\necho done >&3\n")
    give(root, USER)
    before = state_of(code)
    environment = as_user(USER)
    environment["env"]["RQ_ROOT"] = str(root)
    for words in (
        ["rq-install", "--port", free_port()],
        ["rq", "up", "--no-samples"],
        ["rq", "send", "work", "--wait"],
        ["rq", "down"],
        ["rq-mgr", "start"],
        ["rq", "up"],
        ["rq", "demo"],
        ["rq-mgr", "stop"],
    ):
        done = call([code / "bin" / words[0], *words[1:]], **environment)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stdout + done.stderr
    assert state_of(code) == before
    assert set(owners(root).values()) == {USER}


@pytest.mark.slow
def test_a_venv_of_root_that_is_out_of_date_is_one_sentence(code):
    lock = code / "requirements.lock"
    text = lock.read_text()
    lock.write_text(text.replace("falcon==4", "falcon==5"))
    done = call([code / "bin/rq", "version"], **as_user(USER))
    lock.write_text(text)
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert "as root run " in sentence
    assert sentence.endswith("bin/bootstrap.py")
