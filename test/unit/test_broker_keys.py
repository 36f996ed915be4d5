"""The keys under which the broker sends messages to a queue of RQ, in its owner's memory."""

from rq.spool.entry import Counts
from rq.spool.memory import BROKER_KEY, BROKER_KEY_SECONDS, Accepted, Memory
from rq.spool.outbox import Outbox
from rq.spool.transactions import Transactions


def test_keys_of_the_broker_are_remembered_for_minutes_and_others_for_days():
    memory = Memory(counts=Counts(), owed=Outbox({}), txns=Transactions())
    for number in range(10_000):
        at = 1e9 + number
        memory.remember_key(f"{BROKER_KEY}{number}", Accepted("id", at))
        if not number % 1000:
            memory.remember_key(f"mine/{number}", Accepted("id", at))
    keys = memory.remembered_keys()
    assert sum(key.startswith("mine/") for key in keys) == 10
    theirs = [key for key in keys if key.startswith(BROKER_KEY)]
    assert len(theirs) == len(memory.brief) == BROKER_KEY_SECONDS + 1
    assert theirs[-1] == f"{BROKER_KEY}9999"
    memory.forget_key(theirs[0], 1e9 + 20_000)
    memory.remember_key(f"{BROKER_KEY}last", Accepted("id", 1e9 + 20_000))
    assert list(memory.brief) == [f"{BROKER_KEY}last"]
