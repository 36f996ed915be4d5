"""Which directories are tables, and what is told of one that cannot be read."""

from __future__ import annotations

import asyncio
import shutil
import sys

import pytest

from rq import tables
from rq.errors import BadInput
from rq.layout import Root
from rq.spark import delta, delta_days, table_facts, table_list
from rq.tables import LOG, Name
from rq.web import table_reader
from rq.web.table_reader import Reader

ORDERS = Name("shop", "orders")


@pytest.fixture
def root(tmp_path):
    """Give a root with a table whose first commit is still to come."""
    made = Root(tmp_path)
    (tables.place(made, ORDERS) / LOG).mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    "text", ["../orders", "./orders", ".x/orders", "a/b/c", "/x", "x"]
)
def test_a_name_leads_to_no_other_place(text):
    with pytest.raises(BadInput, match="names no table: say QUEUE/NAME"):
        tables.name(text)


def test_a_copy_beside_a_table_is_none(root):
    above = tables.place(root, ORDERS).parent
    shutil.copytree(above / "orders", above / "orders.bak")
    shutil.copytree(above, above.parent / "shop (old)")
    assert list(tables.every(root)) == [ORDERS]


@pytest.mark.parametrize("text", ["{", "[]", '{"tables": [5]}'])
def test_a_damaged_decision_is_told_as_held(root, text):
    own = root.spark / "writes" / "shop" / "abc"
    own.mkdir(parents=True)
    (own / "list.json").write_text(text)
    [held] = table_list.held(root)
    assert (held["queue"], held["key"], held["tables"]) == ("shop", "abc", [])
    assert "list.json is damaged" in held["why"]


def test_plain_files_need_nothing_that_reads_delta(root, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert delta_days.taken(str(tmp_path), "2026-11-01", {}) is None
    with pytest.raises(BadInput, match="deltalake is not installed: run `rq up"):
        delta.load(str(tables.place(root, ORDERS)))


def test_a_list_of_tables_is_whole_when_others_are_forgotten(root, monkeypatch):
    names = [Name("shop", name) for name in ("a", "b", "c")]
    monkeypatch.setattr(table_reader, "_MOST", 2)

    async def listed():
        reader = Reader(root)
        await reader.of(names[:2])
        return [facts["table"] for facts in await reader.of(names[1:])]

    assert asyncio.run(listed()) == ["shop/b", "shop/c"]


class PanicException(BaseException):
    """What Rust ends by is called so."""


@pytest.mark.parametrize(
    ("error", "is_so"),
    [
        (ValueError("what another program has written"), True),
        (PanicException("index out of bounds"), True),
        (KeyboardInterrupt(), False),
        (SystemExit(1), False),
    ],
)
def test_a_signal_is_no_matter_of_a_log(error, is_so):
    assert table_facts.is_of_log(error) is is_so
