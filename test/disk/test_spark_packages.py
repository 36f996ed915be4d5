"""What slots of Spark lay out on their host: as long as a slot or its agent has it, and no
longer."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile

import pytest

from rq.spark import lease_task

OLD, NEW, SCRIPT = f"rq-{'a' * 32}", f"rq-{'b' * 32}", f"script-{'c' * 32}"


@pytest.fixture
def base(tmp_path):
    """Give the directory of all slots."""
    path = tmp_path / "base"
    path.mkdir()
    return path


@pytest.fixture
def packed(tmp_path):
    def make(name):
        file = tmp_path / f"{name}.file"
        file.write_text(name)
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as tar:
            tar.add(file, "file")
        return str(tmp_path / f"{name}.tar.gz")

    return make


class Slots:
    """Slots that have something, each until it lets go of it."""

    def __init__(self, base, packed):
        self.base, self.packed = base, packed
        self.held = []

    def lay_out(self, *names):
        tars = [self.packed(name) for name in names]
        new = lease_task.laid_out(str(self.base), tars)
        self.held += new
        return new

    def let_go(self, held):
        self.held.remove(held)
        os.close(held.lock)


@pytest.fixture
def slots(base, packed):
    made = Slots(base, packed)
    yield made
    for held in list(made.held):
        made.let_go(held)


def there(base):
    return sorted(path.name for path in base.iterdir() if path.is_dir())


def test_what_no_slot_has_any_more_is_removed_by_the_next(base, slots):
    for one in slots.lay_out(OLD, SCRIPT):
        assert (base / one.path / "file").exists()
        slots.let_go(one)
    [new] = slots.lay_out(NEW)
    assert there(base) == [NEW]
    assert (base / NEW / "file").read_text() == NEW
    assert new.path == str(base / NEW)


def test_what_a_slot_has_stays(base, slots):
    slots.lay_out(OLD, SCRIPT)
    slots.lay_out(NEW)
    assert there(base) == [OLD, NEW, SCRIPT]


def test_what_the_agent_of_a_killed_slot_has_stays_until_it_ends(base, slots):
    [old] = slots.lay_out(OLD)
    words = [sys.executable, "-c", "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[old.lock]) as agent:
        slots.let_go(old)
        slots.lay_out(NEW)
        assert there(base) == [OLD, NEW]
        agent.communicate(b"\n")
    slots.lay_out(NEW)
    assert there(base) == [NEW]


def test_what_was_half_laid_out_is_removed(base, slots):
    (base / "new-abc").mkdir()
    (base / "new-abc" / "file").write_text("")
    slots.lay_out(NEW)
    assert there(base) == [NEW]


def test_what_agents_have_not_handed_in_stays(base, slots):
    (base / "agents").mkdir()
    slots.lay_out(NEW)
    assert there(base) == ["agents", NEW]


def test_what_is_there_is_not_laid_out_again(base, slots):
    slots.lay_out(NEW)
    (base / NEW / "more").write_text("")
    slots.lay_out(NEW)
    assert (base / NEW / "more").exists()
