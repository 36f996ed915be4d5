"""The benchmark beside the peers: one that is missing or fails is a row, not the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

CHECKOUT = Path(__file__).resolve().parents[2]
BENCH = CHECKOUT / "test/bench"

# Two peers, one of which stops answering, and four ways of taking figures.
FAILING = """
import sys
from pathlib import Path
import rounds, table
from peers import Peer
from rq.errors import OutcomeUnknown

def peer(name, install):
    return Peer(name=name, about="", install=install, accepting=None, forking=None,
                staying=None, again=None)

def cannot():
    raise FileNotFoundError(2, "no such program", "pip")

def good(one, where, sizes):
    yield "accept, 1 client", 100.0

def half(one, where, sizes):
    yield "cycle, workers that stay", 200.0
    raise OutcomeUnknown("it did not answer in time")

def ended(one, where, sizes):
    raise SystemExit("7 of 8 there after kill -9")
    yield

def torn(one, where, sizes):
    where.rmdir()
    yield "ready again after kill -9", 3.0

disk = Path(sys.argv[1])
found = table.Table(disk="here", queued=8)
takes = rounds.accepted, rounds.processes, rounds.stays, rounds.full = half, good, ended, torn
rounds.raw.measure = lambda *_: 1 / 0
sizes = rounds.Sizes(burst=1, seconds=1, cycle=1, starts=1, queued=8, rounds=1)
peers = [peer("sound", lambda: None), peer("gone", lambda: "no gone -> get gone"),
         peer("odd", cannot)]
rounds.everything(peers, disk, sizes, found)
print("== table")
print(found.text(1.0))
"""


def run(*words, **env):
    path = os.pathsep.join(map(str, [CHECKOUT, BENCH, BENCH / "peers"]))
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_peer_that_fails_keeps_its_figures_and_the_others_theirs(tmp_path):
    done = run("-c", FAILING, str(tmp_path))
    assert done.returncode == 0, done.stderr
    told, _, shown = done.stdout.partition("== table")
    # Each is told as it comes: what was measured is not lost with the run.
    assert "sound: cycle, workers that stay: 200/s\n" in told
    assert "sound: accept, 1 client: 100/s\n" in told
    for text in (
        "| accept, 1 client | 100/s |",
        "| cycle, workers that stay | 200/s |",
        "| ready again after kill -9 | 3.00 s |",
        "| gone | not installed: no gone; get it: `get gone` |",
        "* FAILED: sound: half: OutcomeUnknown: it did not answer in time",
        "* FAILED: sound: ended: SystemExit: 7 of 8 there after kill -9",
        "* FAILED: raw machine: ZeroDivisionError: division by zero",
    ):
        assert text in shown, shown
    assert "| odd | not installed: it cannot be installed: FileNotFoundError" in shown


@pytest.mark.slow
def test_a_peer_that_is_not_installed_is_a_row_that_says_so(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "seq", "xargs", "date"):  # and no apt-get
        (programs / name).symlink_to(shutil.which(name))
    where = ["--env", str(tmp_path / "env"), "--disk", "disk"]
    words = [str(BENCH / "peers"), "--quick", *where, "--only", "beanstalkd"]
    here = {"PATH": str(programs), "RQ_BENCH_DIR": str(tmp_path)}
    done = run(*words, **here)
    assert done.returncode == 0, done.stderr
    missing = "no beanstalkd; get it: `apt-get install beanstalkd`"
    assert f"| beanstalkd -f0 | not installed: {missing} |" in done.stdout
    assert "FAILED" not in done.stdout
