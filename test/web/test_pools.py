"""Searches: two at once, some may wait, and none holds up anything else."""

import asyncio
import threading

import pytest

from rq.errors import Refused
from rq.web.site import SEARCHES, WAITING, Pools


def test_two_searches_are_at_work_some_wait_and_more_are_refused():
    async def crowd():
        pools, go = Pools(), threading.Event()
        begun = threading.Semaphore(0)

        def search():
            begun.release()
            return go.wait(30)

        asked = [pools.search(search) for _ in range(SEARCHES + WAITING)]
        assert await asyncio.to_thread(begun.acquire, True, 10)
        with pytest.raises(Refused, match="try again"):
            pools.search(search)
        assert await pools.file(int, "7") == 7  # files are not held up
        assert await asyncio.to_thread(int, "8") == 8  # nor anything else
        go.set()
        assert await asyncio.gather(*asked) == [True] * len(asked)
        assert await pools.search(int, "9") == 9

    asyncio.run(crowd())


def test_a_search_whose_asker_has_gone_still_counts_until_it_ends():
    async def leave():
        pools, go = Pools(), threading.Event()
        asked = [pools.search(go.wait, 30) for _ in range(SEARCHES + WAITING)]
        asked[0].cancel()
        with pytest.raises(Refused):
            pools.search(go.wait, 30)
        go.set()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(leave())
