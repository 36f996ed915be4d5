"""Another local user reads, writes and reaches nothing of a busy root."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from harness.processes import acting_as, open_to_others
from harness.waiting import wait_until
from harness.web_server import served

from rq.errors import Unreachable
from rq.rpc import client

pytestmark = pytest.mark.process
STRANGER = 4321
PRIVATE = stat.S_IRWXO


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A root that has seen messages, attachments, logs, tokens and a login's secrets."""
    old = os.umask(0o022)
    try:
        with served(tmp_path_factory.mktemp("root")) as site:
            name = site.queue("echo hello; echo secret > kept; echo done >&3")
            msg_id = site.send(name, param1="secret")
            wait_until(lambda: site.state(name, msg_id) == "done")
            mesg = {"mesg[dest]": name, "_method": "prep"}
            site.multipart(f"/q/{name}/new_message", mesg, {"file": ("a", b"secret")})
            wait_until(lambda: list(site.daemon.root.path.rglob("kept")))
            yield site.daemon.root.path
    finally:
        os.umask(old)


def below(top: Path) -> list[tuple[Path, os.stat_result]]:
    """Return a directory in which RQ works, and all below; looked at once more when
    something goes while it is looked at."""
    return wait_until(lambda: [(one, one.lstat()) for one in (top, *top.rglob("*"))])


@pytest.mark.slow
def test_no_file_and_no_directory_that_rq_makes_is_open_to_others(root):
    made = [root / name for name in ("config", "queue", "log", "timers", "scandir")]
    loose = []
    for top in made:
        for path, info in below(top):
            if not stat.S_ISLNK(info.st_mode) and info.st_mode & PRIVATE:
                loose.append((oct(info.st_mode), str(path.relative_to(root))))
    assert [one for one in loose if _reachable(root, root / one[1])] == []


def _reachable(root: Path, path: Path) -> bool:
    """Whether every directory above lets others pass."""
    above = [one for one in path.parents if one != root and root in one.parents]
    return all(one.stat().st_mode & stat.S_IXOTH for one in above)


@pytest.mark.slow
def test_files_below_the_directories_of_a_clone_are_closed_all_the_same(root):
    """git makes these directories, open to all where the umask says so."""
    loose = []
    for top in (root / name for name in ("config", "timers", "scandir")):
        for path, info in below(top):
            mode = info.st_mode
            if not (stat.S_ISLNK(mode) or stat.S_ISDIR(mode)) and mode & PRIVATE:
                loose.append((oct(mode), str(path)))
    assert loose == []


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be two users")
def test_another_user_connects_to_nothing(root):
    open_to_others(root)
    sockets = [one for one, info in below(root) if stat.S_ISSOCK(info.st_mode)]
    assert len(sockets) >= 3
    for path in sockets:
        with acting_as(STRANGER, STRANGER), pytest.raises(Unreachable):
            client.connect(path, 5)
