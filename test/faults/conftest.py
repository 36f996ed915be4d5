"""Disks that fail: a shim before libc, and small file systems of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from faults.clocks import Clock
from harness import c_library
from harness.failing_calls import run
from harness.kills import site_at
from xdist.scheduler import LoadFileScheduling

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def compiled():
    """Give what makes a library of a C file that lies here."""
    return lambda name, directory: c_library.compiled(HERE / name, directory)


@pytest.fixture(scope="session")
def library(tmp_path_factory, compiled):
    """What lets the nth call of a process fail."""
    return compiled("nth.c", tmp_path_factory.mktemp("nth"))


@pytest.fixture(scope="module")
def calls(request, library, tmp_path_factory):
    """Return the calls of a life of the module's STORY in which none fails."""
    where = tmp_path_factory.mktemp("count") / "root"
    found = run(request.module.STORY, where, library, 0, 0)
    assert len(found) > 100
    return found


@pytest.fixture(scope="session")
def shim_library(tmp_path_factory, compiled):
    return compiled("shim.c", tmp_path_factory.mktemp("shim"))


class Shim:
    """What goes wrong, while it does."""

    def __init__(self, library: Path, directory: Path) -> None:
        self.directory = directory
        self.env = {"LD_PRELOAD": str(library), "SHIM_DIR": str(directory)}

    def set(self, what: str, path: str = "") -> None:
        """Begin `hold.CALL`, `fail.CALL` or `full.CALL`, for paths that hold `path`."""
        new = self.directory / "new"  # without its path it would be for all paths
        new.write_text(path)
        new.rename(self.directory / what)

    def clear(self) -> None:
        for one in self.directory.iterdir():
            if one.name != "calls":
                one.unlink()

    def calls(self, call: str, path: str = "") -> list[str]:
        """Return the files that were synced with `call`, in order."""
        lines = (self.directory / "calls").read_text().splitlines()
        pairs = (line.split(" ", 1) for line in lines)
        return [file for name, file in pairs if name == call and path in file]


@pytest.fixture
def shim(shim_library, tmp_path):
    directory = tmp_path / "shim"
    directory.mkdir()
    shim = Shim(shim_library, directory)
    yield shim
    shim.clear()


@pytest.fixture
def clock(compiled, tmp_path):
    return Clock(compiled("clock.c", tmp_path), tmp_path / "clock")


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.act("hold", '[ "$RQ_COUNT" = 0 ] || return 0\nhold')
        yield site


def mounted(kind, source, target, options):
    """Mount a small file system; skip when that is not allowed."""
    target.mkdir()
    words = ["mount", "-t", kind, "-o", options, source, target]
    if os.geteuid() != 0 or subprocess.run(words, check=False, stderr=-3).returncode:
        pytest.skip("small disks need mount -> sudo ./test/run_tests.sh faults")


def unmounted(target):
    subprocess.run(["umount", target], check=False, stderr=-3)
    subprocess.run(["umount", "-l", target], check=False, stderr=-3)


@pytest.fixture
def disk(tmp_path):
    """Give an ext4 of 24 MiB with a journal, as a directory."""
    image, target = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(24 * 1024 * 1024)
    words = ["mkfs.ext4", "-q", "-J", "size=4", image]
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4 -> apt-get install e2fsprogs")
    subprocess.run(words, check=True)
    mounted("ext4", image, target, "loop,errors=remount-ro")
    yield target
    unmounted(target)


@pytest.fixture
def few_inodes(tmp_path):
    """Give a tmpfs with room for few files."""
    target = tmp_path / "few"
    mounted("tmpfs", "none", target, "size=64m,nr_inodes=150")
    yield target
    unmounted(target)


class ByFileButPlantedBugs(LoadFileScheduling):
    """The tests of a file run on one worker, since they share what it sets up. Planted
    bugs share little and take long: each runs on whichever worker is free."""

    def _split_scope(self, nodeid: str) -> str:
        if "test_mutants.py::" in nodeid:
            return nodeid
        return super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config, log):
    """Choose who runs what; None: as the command line says."""
    if config.getoption("dist") == "loadfile":
        return ByFileButPlantedBugs(config, log)
    return None
