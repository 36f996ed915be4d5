"""Equal messages on the command line: who stands, in a sentence, in JSON, by the exit code."""

import json

import pytest
from harness.cli import BUNDLED, define, rq, running

pytestmark = [pytest.mark.system, pytest.mark.long]

WORK = "#!/bin/sh\necho done >&3\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("unique") / "root"
    path.mkdir()
    define(path, "joins", WORK, num_workers=0, unique={"params": [1]})
    define(path, "rejects", WORK, num_workers=0, unique={"conflict": "reject"})
    with running(path, without=BUNDLED):
        yield path


@pytest.mark.parametrize("attached", [False, True])
def test_send_says_that_an_equal_message_stands(root, tmp_path, attached):
    (tmp_path / "a.txt").write_text("x")
    files = ["-a", tmp_path / "a.txt"] if attached else []
    send = ["send", "joins", "-p1", str(attached), *files]
    first = rq(*send, "--id-only", root=root).stdout.strip()
    again = rq(*send, root=root)
    said = f"joined, an equal message stands: joins/{first}\n"
    assert (again.returncode, again.stdout) == (0, said)
    shown = json.loads(rq(*send, "--json", root=root).stdout)
    assert (shown["msg_id"], shown["joined"]) == (first, True)


@pytest.mark.parametrize("attached", [False, True])
def test_send_fails_with_the_one_that_stands(root, tmp_path, attached):
    (tmp_path / "a.txt").write_text("x")
    files = ["-a", tmp_path / "a.txt"] if attached else []
    send = ["send", "rejects", "--unique-key", f"k{attached}", *files]
    first = rq(*send, "--id-only", root=root).stdout.strip()
    again = rq(*send, root=root)
    assert again.returncode == 4
    assert first in again.stderr
    assert rq("ls", "rejects", "--state", "prep", root=root).stdout.strip() == ""
