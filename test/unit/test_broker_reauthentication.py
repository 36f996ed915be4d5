"""After a password change many clients are identified again without holding the loop."""

import asyncio
from types import SimpleNamespace

from rq.broker.clients.admission import Reauthentication

CLIENTS = 1_000


def test_each_is_asked_once_and_who_is_to_be_obeyed_is_asked_at_once():
    asyncio.run(asyncio.wait_for(_asked(), 20))


async def _asked():
    asked, over = [], asyncio.Event()

    def ask(client):
        asked.append(client.number)
        if len(asked) == CLIENTS:
            over.set()

    again = Reauthentication(asyncio.get_running_loop(), ask)
    clients = {n: SimpleNamespace(number=n, principal="who") for n in range(CLIENTS)}
    again.begin(clients)
    assert asked == []
    assert {client.principal for client in clients.values()} == {None}
    again.settle(clients[0])
    again.settle(clients[0])
    assert asked == [0]
    await over.wait()
    assert sorted(asked) == list(clients)


def test_of_who_is_gone_or_after_the_end_nobody_is_asked():
    asyncio.run(_none_asked())


async def _none_asked():
    asked = []
    again = Reauthentication(asyncio.get_running_loop(), asked.append)
    clients = {n: SimpleNamespace(number=n, principal=None) for n in (1, 2)}
    again.begin(clients)
    again.forget(clients[1])
    again.settle(clients[1])
    again.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asked == []
