"""Small files of a table are joined while it is read and written."""

from __future__ import annotations

import threading

import duckdb
import pytest
from deltalake import DeltaTable
from harness import small_files

from rq import tables
from rq.layout import Root
from rq.spark import table_care, table_list
from rq.tables import Name

NAME = Name("logs", "small")


class Readers:
    """Read a table again and again, each as programs of others do."""

    def __init__(self, place):
        self._place = place
        self._ended = threading.Event()
        self.seen, self.failed = set(), []
        self._threads = [
            threading.Thread(target=self._read, args=(read,)) for read in (arrow, duck)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _read(self, read):
        while True:
            try:
                self.seen.add(read(self._place))
            except Exception as error:  # noqa: BLE001 - whatever it is
                self.failed.append(error)
            if self._ended.is_set():
                return


def arrow(place):
    return DeltaTable(place).to_pyarrow_table(columns=["n"]).num_rows


def duck(place):
    lake = DeltaTable(place).to_pyarrow_dataset()
    query = "SELECT count(n) FROM lake"
    return duckdb.connect().register("lake", lake).execute(query).fetchone()[0]


@pytest.mark.slow
def test_readers_see_all_rows_while_small_files_are_joined(tmp_path):
    root = Root(tmp_path)
    place = tables.place(root, NAME)
    small_files.write(place, files=600, versions=20)
    with Readers(place) as readers:
        before, after = table_care.optimize(root, NAME)
        # What versions of the last days name stays for who reads these.
        assert table_care.vacuum(root, NAME, table_care.LEAST, dry=False) == []
    assert (readers.seen, readers.failed) == ({600 * small_files.ROWS}, [])
    assert (before, after) == (600, 1)
    table = table_list.load(root, NAME)
    assert table.history(1)[0]["operation"] == "OPTIMIZE"
    old = DeltaTable(place, version=table.version() - 1)
    assert old.to_pyarrow_table().num_rows == 600 * small_files.ROWS
