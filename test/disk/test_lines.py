"""The lines to the owners of queues."""

from __future__ import annotations

import asyncio

import pytest

from rq.config import files
from rq.errors import NoSuchQueue
from rq.layout import Root
from rq.rpc.lines.owners import Owners


def test_names_of_queues_that_are_not_there_leave_nothing_behind(tmp_path):
    root = Root(tmp_path)
    files.make_root(root)
    owners = Owners(root)

    async def ask_for_many() -> None:
        for number in range(100):
            with pytest.raises(NoSuchQueue):
                await owners.ask(f"none-{number}", "status")

    asyncio.run(ask_for_many())
    assert owners._lines == {}
