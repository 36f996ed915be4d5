"""Delta tables in a store, of jobs that are killed at each step of a batch."""

from __future__ import annotations

import pytest
from harness.delta_kills import kill_at_each
from harness.stored_tables import RIGHTS, Lake


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lone", "two", "merge"])
def test_each_row_is_in_the_store_once_whatever_is_killed(tmp_path, store, kind):
    lake = Lake(store)
    names = ["flights", *(["second"] if kind == "two" else [])]

    def look():
        made = lake.names()
        return [lake.pairs(name) for name in names if name in made]

    kill_at_each(tmp_path, kind, look, RIGHTS, tables=lake.setting)
    assert lake.left() == []
    for path in (tmp_path / "spark/writes/logs").iterdir():
        assert path.name == "lock" or (path / "done").is_file()
