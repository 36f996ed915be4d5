"""What jobs expect of their data, as it is kept for the pages of tables."""

from __future__ import annotations

import contextlib
import sqlite3
import time

import pytest

from rq import checks
from rq.checks import Batch, Check, Checks, Kind
from rq.errors import Busy
from rq.layout import Root


def add(kept, text, wrote, *, table="", holds=True):
    kind = Kind.CONTRACT if table else Kind.EXPECT
    check = Check(kind=kind, table=table, text=text, holds=holds)
    kept.add(Batch(batch_id="b", time=1.5, ids=["m1"], wrote=wrote), [check])


def texts(kept, table, most=100):
    return [view["text"] for view in kept.of_table(table, most)]


def test_a_table_has_the_checks_of_its_batches_the_newest_first(tmp_path):
    kept = Checks(Root(tmp_path), "logs")
    assert texts(kept, "hits") == []
    add(kept, "rows", ["hits", "other"])
    add(kept, "of another", ["other"])
    add(kept, "range", ["hits", "other"], table="hits", holds=False)
    add(kept, "failed early", [], holds=False)
    assert texts(kept, "hits") == ["failed early", "range", "rows"]
    assert texts(kept, "hits", 1) == ["failed early"]
    assert texts(kept, "other") == ["failed early", "of another", "rows"]
    assert texts(Checks(Root(tmp_path), "mail"), "hits") == []
    newest = kept.of_table("hits", 2)[1]
    assert newest == {
        "number": 3,
        "time": 1.5,
        "batch": "b",
        "ids": ["m1"],
        "kind": "contract",
        "holds": False,
        "text": "range",
    }


def test_only_the_last_checks_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "_KEPT", 3)
    kept = Checks(Root(tmp_path), "logs")
    for n in range(5):
        add(kept, f"{n}", ["hits"])
    add(kept, "x" * 9999, ["hits"])
    assert [text[:3] for text in texts(kept, "hits")] == ["xxx", "4", "3"]
    assert len(texts(kept, "hits")[0]) == 500


def test_a_file_that_is_damaged_says_so(tmp_path):
    kept = Checks(Root(tmp_path), "logs")
    add(kept, "rows", ["hits"])
    (tmp_path / "spark" / "checks" / "logs.sqlite").write_bytes(b"no" * 5000)
    with pytest.raises(Busy, match=r"logs\.sqlite"):
        kept.of_table("hits", 10)
    with pytest.raises(Busy):
        add(kept, "more", [])


@pytest.mark.parametrize(
    "change", ["ids = '{'", "ids = '5'", "at = 'soon'", "wrote = '{'"]
)
def test_what_is_no_check_is_no_error_of_python(tmp_path, change):
    kept = Checks(Root(tmp_path), "logs")
    add(kept, "rows", ["hits"])
    changed(tmp_path, change)
    with pytest.raises(Busy, match=r"logs\.sqlite"):
        kept.of_table("hits", 10)


def changed(root, change):
    """Let a row be what the code of a job may write."""
    path = root / "spark" / "checks" / "logs.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE checks SET {change}")


def test_a_check_of_no_time_is_shown_as_one_of_today(tmp_path):
    kept = Checks(Root(tmp_path), "logs")
    add(kept, "rows \ud800", ["hits"])
    for at in ("1e300", "-1e300", "9e999"):
        changed(tmp_path, f"at = {at}")
        [view] = kept.of_table("hits", 10)
        assert 0 <= view["time"] < time.time() + 2 * 86400
        assert view["text"] == "rows ?"
