"""Of many clients it is asked who they are without holding the loop."""

import asyncio
from types import SimpleNamespace

from rq.broker.anew import Anew

CLIENTS = 1_000


def test_each_is_asked_once_and_who_is_to_be_obeyed_is_asked_at_once():
    asyncio.run(asyncio.wait_for(_asked(), 20))


async def _asked():
    asked, over = [], asyncio.Event()

    def ask(client):
        asked.append(client.number)
        if len(asked) == CLIENTS:
            over.set()

    anew = Anew(asyncio.get_running_loop(), ask)
    clients = {n: SimpleNamespace(number=n, principal="who") for n in range(CLIENTS)}
    anew.begin(clients)
    assert asked == []
    assert {client.principal for client in clients.values()} == {None}
    anew.settle(clients[0])
    anew.settle(clients[0])
    assert asked == [0]
    await over.wait()
    assert sorted(asked) == list(clients)


def test_of_who_is_gone_or_after_the_end_nobody_is_asked():
    asyncio.run(_none_asked())


async def _none_asked():
    asked = []
    anew = Anew(asyncio.get_running_loop(), asked.append)
    clients = {n: SimpleNamespace(number=n, principal=None) for n in (1, 2)}
    anew.begin(clients)
    anew.forget(clients[1])
    anew.settle(clients[1])
    anew.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asked == []
