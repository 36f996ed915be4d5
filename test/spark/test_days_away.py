"""Days that are made again when their store is away, or the disk full: as before, or new."""

from __future__ import annotations

import contextlib
import json
import os

import pytest
from harness.small_disk import small_disk
from harness.spark_days import ALL, MON, NEW, TUE, Place, tenfold
from harness.store_gate import Gate
from pyarrow import fs, parquet

from rq.days import Standing
from rq.errors import RQError, Unreachable
from rq.spark import day_files, functions, remote, writes


@pytest.fixture
def at_root(tmp_path, monkeypatch):
    """Let this process be in a directory of its own, at the root of these tests."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("RQ_ROOT", str(tmp_path / "root"))
    yield
    functions.F.use(functions.SPARK)


class Far(Place):
    """One whose table is in a store."""

    def __init__(self, top, host, bucket):
        end = f"?endpoint_override={host}&scheme=http&region=us-east-1"
        super().__init__(top, f"s3://{bucket}/out/{end}")
        self._bucket = bucket

    def rows(self, system):
        """Return what readers see; they look by a way that is never shut."""
        every = system.get_file_info(fs.FileSelector(self._bucket, recursive=True))
        files = [e.path for e in every if "/out/day=" in e.path and e.is_file]
        named = [
            f"{self._bucket}/out/{file['file']}"
            for e in every
            if e.is_file
            and e.path.startswith(f"{self._bucket}/out/_rq/")
            and e.path.endswith(".json")
            for file in json.loads(system.open_input_file(e.path).read())["files"]
        ]
        assert sorted(files) == sorted(named)
        found = []
        for path in files:
            day = path.partition("/day=")[2].partition("/")[0]
            table = parquet.read_table(path, filesystem=system, partitioning=None)
            found += [(day, int(n)) for n in table.column("n").to_pylist()]
        return sorted(found)


@pytest.fixture
def far(store, tmp_path, at_root, monkeypatch):
    """Give a place in a store, and the way to it."""
    monkeypatch.setattr(remote, "TRIES", 1)
    end, host = store
    bucket = f"days-{os.urandom(4).hex()}"
    system, _ = fs.FileSystem.from_uri(
        f"s3://{bucket}/{end}&allow_bucket_creation=true"
    )
    system.create_dir(bucket)
    gate = Gate(host)
    try:
        made = Far(tmp_path, gate.host, bucket)
        made.root.path.mkdir()
        yield made.two(), gate, system
    finally:
        gate.close()


@pytest.mark.slow
def test_days_in_a_store_are_made_again(far):
    place, _, system = far
    assert place.rows(system) == ALL
    place.code(tenfold)
    assert [place.state(day) for day in (MON, TUE)] == [Standing.STALE] * 2
    assert place.again(MON) == "4 rows of 4 messages in 2 batches"
    assert place.rows(system) == NEW
    assert [place.state(day) for day in (MON, TUE)] == [Standing.DONE, Standing.STALE]


@pytest.mark.slow
@pytest.mark.parametrize("step", ["begun", "written", "decided", "taken"])
def test_a_store_that_is_away_leaves_a_day_as_it_was_or_new(far, step):
    place, gate, system = far
    place.code(tenfold)
    with pytest.raises(Unreachable):
        again(place, step, gate.shut)
    assert place.state(MON) == Standing.FAILED
    gate.is_open = True
    writes.carry_out("logs")
    is_decided = step in ("decided", "taken")
    assert place.rows(system) == (NEW if is_decided else ALL)
    assert place.state(MON) == (Standing.DONE if is_decided else Standing.FAILED)
    place.again(MON)
    assert place.rows(system) == NEW
    assert place.state(MON) == Standing.DONE


def again(place, step, act):
    """Make a day again, and do something before a step of that."""
    with pytest.MonkeyPatch.context() as patch:
        before(step, act, patch)
        place.again(MON)


def before(step, act, patch):
    """Do something before a step of what makes a day again."""
    if step == "begun":
        act()
        return
    where, name = {
        "written": (day_files, "of_day"),
        "decided": (writes, "_publish"),
        "taken": (writes, "_let_be_seen"),
    }[step]
    does = getattr(where, name)

    def do(*of):
        act()
        return does(*of)

    patch.setattr(where, name, do)


# ---- a disk that is full


@pytest.fixture
def small(tmp_path, at_root):
    """Give a place whose root and table are on a disk of 8 MiB."""
    disk = tmp_path / "root"
    with small_disk(disk, "8m", part="spark"):
        yield Place(tmp_path, disk / "out").two()


def fill(place):
    """Leave no byte on the disk of a place."""
    with contextlib.suppress(OSError), (place.root.path / "fill").open("wb", 0) as file:
        while file.write(bytes(4096)):
            pass


@pytest.mark.parametrize("step", ["begun", "written", "decided", "taken"])
def test_a_full_disk_leaves_a_day_as_it_was_or_new(small, step):
    small.code(tenfold)
    with pytest.raises((OSError, RQError)):
        again(small, step, lambda: fill(small))
    (small.root.path / "fill").unlink()
    writes.carry_out("logs")
    assert small.rows() in (ALL, NEW)
    small.again(MON)
    assert small.rows() == NEW
    assert small.state(MON) == Standing.DONE
