"""Who asks for a turn of the loop gets one, and who asks together shares it."""

import asyncio
from types import SimpleNamespace

from rq.queues.concurrency import Wakeup
from rq.queues.loop import Loop


def turns_after(act):
    """Return how many turns begin once `act` has been called with the wakeup."""

    async def story():
        wakeup, turns = Wakeup(asyncio.get_running_loop()), 0

        async def run():
            nonlocal turns
            while True:
                await wakeup.wanted()
                turns += 1
                if turns == 1:
                    act(wakeup)

        loop = asyncio.create_task(run())
        await asyncio.sleep(0)
        wakeup.ask()
        for _ in range(20):
            await asyncio.sleep(0)
        loop.cancel()
        return turns

    return asyncio.run(story())


def test_nobody_asks_and_no_turn_follows():
    assert turns_after(lambda wakeup: None) == 1


def test_who_asks_in_a_turn_gets_one_more_however_often():
    def twice(wakeup):
        wakeup.ask()
        wakeup.ask()

    assert turns_after(twice) == 2


def test_who_asks_before_anybody_waits_is_not_forgotten():
    async def story():
        wakeup = Wakeup(asyncio.get_running_loop())
        wakeup.ask()
        await asyncio.wait_for(wakeup.wanted(), 1.0)

    asyncio.run(story())


def test_a_turn_lets_all_else_that_is_ready_go_first():
    # A queue that always has something to do must still hear its clients.
    async def story():
        wakeup, order = Wakeup(asyncio.get_running_loop()), []
        wakeup.ask()
        asyncio.get_running_loop().call_soon(order.append, "client")
        await wakeup.wanted()
        order.append("turn")
        return order

    assert asyncio.run(story()) == ["client", "turn"]


def test_who_waits_for_a_commit_is_told_once():
    async def story():
        wakeup = Wakeup(asyncio.get_running_loop())
        waiter = wakeup.committed()
        assert wakeup.awaited
        wakeup.tell_committed()
        await waiter
        return wakeup.awaited

    assert asyncio.run(story()) is False


def test_a_turn_in_which_rq_fails_is_followed_by_another(caplog):
    def fail(_):
        raise RuntimeError("a fault that nobody foresaw")

    asked = []
    owner = SimpleNamespace(
        admission=SimpleNamespace(restored=None),
        spool=SimpleNamespace(displaced=None),
        wakeup=SimpleNamespace(ask_in=asked.append),
        root=SimpleNamespace(index_socket=None),
        queue=SimpleNamespace(name="q"),
        loop=None,
    )
    feed = SimpleNamespace(some=fail)
    clients = SimpleNamespace(replies=None, pace=None)
    Loop(owner, None, None, None, None, None, feed, clients, None)._turn()
    assert asked == [1.0]
    assert "a fault that nobody foresaw" in caplog.text
