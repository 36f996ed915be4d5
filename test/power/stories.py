"""The stories whose power cuts are enumerated; run under strace by `trace.record`.

Each is a course of events over one queue, by the code that an owner process runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from power.tale import BEFORE, Tale, in_small, take_marks
from power.wandering import Wanderer

from rq.spool import decisions, transactions
from rq.words.states import Event, State


def accepted(tale: Tale) -> None:
    """Messages are accepted alone and in groups, and get their folders."""
    tale.submit()
    tale.commit()
    for _ in range(3):
        tale.submit(key=f"k/{len(tale.may)}")
    tale.commit()
    tale.apply()
    one = tale.submit()
    tale.commit()
    tale.reschedule(one, 1_900_000_000.0)
    tale.apply()
    tale.submit()


def attached(tale: Tale) -> None:
    """Messages are prepared, get attachments, and are accepted with them."""
    first = tale.prepare(b"small", b"larger " * 2000)
    tale.commit_prepared(first)
    tale.commit()
    second = tale.prepare(b"other")
    tale.apply()
    tale.commit_prepared(second, key="relay/k2")
    tale.commit()
    third = tale.prepare(b"never sent")
    tale.start(first)
    tale.commit()
    tale.end(first)
    tale.apply()
    tale.delete(third)
    tale.apply()


def ran(tale: Tale) -> None:
    """Messages run and end in every way."""
    ids = [tale.submit() for _ in range(5)]
    tale.commit()
    for one in ids:
        tale.start(one)
    tale.commit()
    tale.end(ids[0])
    tale.commit()
    tale.end(ids[1], Event.FAIL)
    tale.end(ids[2], Event.RELAY)
    tale.resend(ids[3])
    tale.commit()
    tale.apply()
    tale.requeue(ids[4])
    tale.apply()
    tale.start(ids[3])
    tale.apply()
    tale.end(ids[3])
    tale.apply()


def hurried(tale: Tale) -> None:
    """A person lets messages run at once that have waited since the last checkpoint."""
    first, second = tale.submit(), tale.submit()
    tale.checkpoint()
    tale.reschedule(first, 1.0)
    tale.start(first)
    tale.commit()
    tale.reschedule(second, 2.0)
    tale.start(second)
    tale.submit()
    tale.commit()
    tale.end(first)
    tale.apply()


def held(tale: Tale) -> None:
    """A person holds messages, before and after a checkpoint, and releases some."""
    ids = [tale.submit() for _ in range(4)]
    tale.commit()
    tale.hold(ids[0])
    tale.hold(ids[1])
    tale.commit()
    tale.checkpoint()
    tale.write_index()
    tale.release(ids[0])
    tale.hold(ids[2])
    tale.commit()
    tale.start(ids[0])
    tale.commit()
    tale.apply()
    tale.release(ids[1])
    tale.end(ids[0])
    tale.hold(ids[3])
    tale.checkpoint()
    tale.delete(ids[3])
    tale.commit()


def waited(tale: Tale) -> None:
    """Messages wait for others, some for more than their file `msg` holds; how these stand
    is told and the messages are freed, before and after a checkpoint."""
    few, many = tale.submit_after(2), tale.submit_after(150)
    tale.commit()
    tale.stand("p/20270115.0800.00.000.1", "done")
    tale.commit()
    tale.apply()
    tale.checkpoint()
    tale.write_index()
    more = tale.submit_after(150)
    tale.commit()
    tale.stand("p/20270115.0800.00.000.1", "failed")
    tale.free(few)
    tale.commit()
    tale.hold(many)
    tale.start(few)
    tale.commit()
    tale.crash_and_start()
    tale.free(more)
    tale.release(many)
    tale.commit()
    tale.apply()
    tale.free(many)
    tale.checkpoint()
    tale.start(more)
    tale.end(more)
    tale.commit()
    tale.apply()


def ranked(tale: Tale) -> None:
    """A person changes priorities, before and after a checkpoint and an attempt."""
    ids = [tale.submit() for _ in range(4)]
    tale.commit()
    tale.steer(ids[0], 5)
    tale.steer(ids[1], 9)
    tale.commit()
    tale.checkpoint()
    tale.write_index()
    tale.steer(ids[1], 0)
    tale.steer(ids[2], 3)
    tale.commit()
    tale.start(ids[2])
    tale.commit()
    tale.apply()
    tale.steer(ids[3], 1)
    tale.reschedule(ids[3], 1.0)
    tale.resend(ids[2])
    tale.commit()
    tale.checkpoint()
    tale.steer(ids[0], 6)
    tale.commit()


def checkpointed(tale: Tale) -> None:
    """Checkpoints come between, and what follows them changes what they cover."""
    ids = [tale.submit() for _ in range(4)]
    tale.commit()
    tale.start(ids[0])
    tale.commit()
    tale.checkpoint()
    tale.end(ids[0])
    tale.start(ids[1])
    tale.commit()
    tale.checkpoint()
    tale.resend(ids[1])
    tale.reschedule(ids[2], 1_850_000_000.0)
    tale.commit()
    tale.checkpoint()
    tale.delete(ids[2])
    tale.start(ids[3])
    tale.end(ids[3], Event.FAIL)
    tale.apply()
    tale.submit()
    tale.checkpoint()


def lagged(tale: Tale) -> None:
    """Folders lag behind the journal while a checkpoint is made, and after it."""
    ids = [tale.submit() for _ in range(4)]
    tale.commit()
    tale.start(ids[0])
    point = tale.begin_checkpoint()
    late = tale.submit()
    tale.end(ids[0])
    tale.commit()
    tale.delete(ids[1])
    tale.commit()
    tale.end_checkpoint(point)
    tale.start(ids[2])
    tale.commit()
    point = tale.begin_checkpoint()
    tale.end(ids[2], Event.FAIL)
    tale.commit()
    tale.end_checkpoint(point)
    tale.reschedule(late, 1_850_000_000.0)
    tale.commit()


def sealed(tale: Tale) -> None:
    """Segments are full, sealed, forgotten; an index is written."""
    first = tale.submit(key="relay/first")
    tale.seal()
    tale.submit()
    tale.checkpoint()
    tale.write_index()
    tale.start(first)
    tale.seal()
    tale.forget_history(tale.spool.journal.seq)
    tale.end(first)
    tale.commit()
    for _ in range(2):
        tale.submit(filler="x" * 6000)
        tale.submit(filler="y" * 5000)
        tale.commit()
    tale.checkpoint()
    tale.write_index()
    tale.forget_history(tale.spool.journal.seq)
    tale.submit(key="relay/last")
    tale.apply()


def removed(tale: Tale) -> None:
    """What has ended is acknowledged, sent round again, deleted, and expires."""
    ids = [tale.submit() for _ in range(6)]
    tale.commit()
    for one in ids[:5]:
        tale.start(one)
    for one, event in zip(ids, (Event.FAIL, Event.FAIL, Event.FINISH), strict=False):
        tale.end(one, event)
    tale.end(ids[3])
    tale.end(ids[4], Event.RELAY)
    tale.apply()
    tale.dismiss(ids[0])
    tale.retry(ids[1])
    tale.delete(ids[5])
    tale.commit()
    tale.expire(State.DONE, ids[2], ids[3])
    tale.commit()
    tale.spool.settle_all()
    tale.checkpoint()
    tale.expire(State.RELAYED, ids[4])
    tale.delete(ids[0])
    tale.delete(ids[1])
    tale.commit()
    tale.spool.remove_empty(["relayed/20270115/08/00", "relayed/20270115/08"])
    tale.apply()


def steered(tale: Tale) -> None:
    """What has failed is acknowledged, called back, and moved to another queue."""
    ids = [tale.submit() for _ in range(4)]
    tale.commit()
    for one in ids[:3]:
        tale.start(one)
    for one in ids[:3]:
        tale.end(one, Event.FAIL)
    tale.apply()
    tale.dismiss(ids[0])
    tale.dismiss(ids[1])
    tale.commit()
    tale.reopen(ids[0])
    tale.commit()
    tale.spool.settle_all()
    tale.checkpoint()
    tale.move(ids[0])
    tale.move(ids[1])
    tale.move(ids[3])
    tale.commit()
    tale.dismiss(ids[2])
    tale.commit()
    tale.reopen(ids[2])
    tale.apply()


def rode(tale: Tale) -> None:
    """Messages that are equal end together, by one line."""
    lead, first, second, other = (tale.submit() for _ in range(4))
    tale.apply()
    tale.start(lead)
    tale.commit()
    tale.end(lead, riders=[first, second], rides="http://leader")
    tale.commit()
    tale.start(other)
    tale.apply()
    tale.end(other, out=[{"dest": "q2", "message": {"dest": "q2"}}])
    tale.commit()
    tale.sent()
    tale.checkpoint()


def deposited(tale: Tale) -> None:
    """Messages come through the other door."""
    tale.deposit("20270115.0800.00.000.7")
    tale.deposit("20270115.0800.00.000.8", b"attached")
    tale.adopt()
    tale.commit()
    tale.spool.settle_all()
    tale.deposit("20270115.0800.00.000.9", b"too")
    tale.adopt()
    tale.start("20270115.0800.00.000.7")
    tale.commit()
    tale.checkpoint()


def restarted(tale: Tale) -> None:
    """The owner is stopped, killed and started again."""
    ids = [tale.submit() for _ in range(3)]
    tale.commit()
    tale.start(ids[0])
    tale.end(ids[0])
    tale.start(ids[1])
    tale.stop()
    tale.again()
    tale.submit(key="relay/k")
    tale.start(ids[1])
    tale.commit()
    tale.start(ids[2])
    tale.crash_and_start()
    tale.submit()
    tale.apply()
    tale.crash_and_start()
    tale.start(ids[1])
    tale.commit()
    tale.checkpoint()
    tale.crash_and_start()
    tale.apply()


def parked(tale: Tale) -> None:
    """The owner is parked and woken, with and without something that has happened."""
    ids = [tale.submit() for _ in range(3)]
    tale.commit()
    tale.start(ids[0])
    tale.end(ids[0])
    tale.commit()
    tale.park()
    tale.park()  # nothing has happened, and nothing is written
    tale.submit(key="relay/k")
    tale.start(ids[1])
    tale.commit()
    tale.end(ids[1])
    tale.park()
    tale.start(ids[2])
    tale.commit()
    tale.crash_and_start()
    tale.apply()
    tale.park()
    tale.stop()
    tale.again()
    tale.submit()
    tale.commit()
    tale.park()


def decided(tale: Tale) -> None:
    """Transactions are committed, with a list of their own if it is long, or aborted."""
    transactions.INLINE = 2
    first, second, third = (tale.open_txn(f"txn {one}") for one in range(3))
    ids = [tale.prepare_in(first) for _ in range(3)]
    for _ in range(2):
        tale.prepare_in(second)
    tale.apply()
    tale.decide(first, *ids[:2])
    tale.commit()
    tale.start(ids[0])
    tale.decide(second)
    tale.apply()
    many = [tale.prepare_in(third) for _ in range(4)]
    tale.commit()
    tale.decide(third, *many[:3])
    tale.commit()
    tale.spool.settle_all()
    tale.end(ids[0])
    tale.checkpoint()
    transactions.drop_manifest(tale.owner.queue, third)
    tale.submit()
    tale.commit()
    tale.prepare_in(tale.open_txn("txn 3"))
    tale.checkpoint()


def chained(tale: Tale) -> None:
    """A chain of transactions is committed by its head; each follows on its own."""
    head = tale.open_txn("head")
    others = [tale.open_txn(None, head.txn_id) for _ in range(2)]
    ids = [[tale.prepare_in(one) for _ in range(2)] for one in (head, *others)]
    tale.apply()
    tale.choose(others[0], ids[1][0])
    tale.commit()
    tale.checkpoint()
    tale.choose(others[1], *ids[2])
    tale.commit()
    tale.decide_chain(head, others, [ids[0][0], ids[1][0], *ids[2]])
    tale.commit()
    decisions.follow(tale.spool, others[0])
    tale.commit()
    tale.checkpoint()
    transactions.drop_manifest(tale.owner.queue, others[0])
    decisions.follow(tale.spool, others[1])
    tale.apply()
    tale.checkpoint()


def joined(tale: Tale) -> None:
    """Messages join others, take their place, and keep equal ones out for a time."""
    first = tale.submit_as("a")
    tale.join(first, "k/1")
    tale.commit()
    tale.start(first)
    tale.end(first)
    tale.join(first, "k/2")
    tale.commit()
    waiting, other = tale.submit(), tale.submit()
    tale.commit()
    tale.replace(waiting)
    tale.apply()
    second = tale.replace(other)
    tale.submit_as("a")
    tale.write_index()
    removed = tale.submit_as("b")
    tale.commit()
    tale.checkpoint()
    tale.known("last =b", "")
    tale.delete(removed)
    tale.apply()
    tale.join(second, "k/3")
    txn = tale.open_txn("txn")
    member = tale.prepare_in(txn, unique_key="c")
    tale.prepare_in(txn, unique_key="d")
    tale.commit()
    tale.known("last =c", member)
    tale.decide(txn, member)
    tale.commit()
    tale.start(member)
    tale.commit()
    tale.end(member)
    tale.apply()
    tale.checkpoint()
    tale.crash_and_start()
    tale.submit_as("c")
    tale.commit()


def leased(tale: Tale) -> None:
    """Messages are leased; leases go on over checkpoints, crashes and a stop, and end."""
    ids = [tale.submit() for _ in range(5)]
    tale.commit()
    for one in ids[:4]:
        tale.lease(one)
    tale.commit()
    tale.finish(ids[0])
    tale.commit()
    files = tale.hand_in(ids[1], b"a result")
    tale.confirm(ids[1], ids[2])
    tale.renew(ids[1], ids[2])
    tale.cancel(ids[2])
    tale.finish(ids[1], files)
    tale.commit()
    tale.checkpoint()
    tale.run_out(ids[2])
    tale.crash_and_start()
    tale.lease(ids[4])
    tale.apply()
    tale.finish(ids[3])
    tale.checkpoint()
    tale.crash_and_start()
    tale.stop()
    tale.owner.open()
    tale.finish(ids[4])
    tale.commit()


def journal_failed(tale: Tale) -> None:
    """A sync of the journal fails; the same events go to a new segment."""
    tale.submit()
    tale.commit()
    first = tale.submit()
    tale.submit()
    tale.commit_fails()
    tale.submit()
    tale.commit()
    tale.start(first)
    tale.apply()
    tale.seal()
    tale.submit()
    tale.checkpoint()
    tale.end(first)
    tale.commit()


def killed_in_doubt(tale: Tale) -> None:
    """A sync of the journal fails, and the owner dies before it has tried again."""
    tale.submit()
    tale.commit()
    tale.submit()
    tale.commit_fails()
    tale.crash_and_start()
    tale.submit()
    tale.apply()
    tale.checkpoint()
    tale.submit()


def folders_failed(tale: Tale) -> None:
    """The sync of a checkpoint fails: what the page cache shows is believed no more."""
    ids = [tale.submit() for _ in range(4)]
    tale.commit()
    tale.start(ids[0])
    tale.start(ids[1])
    tale.end(ids[0])
    tale.checkpoint_fails()
    tale.end(ids[1], Event.FAIL)
    tale.commit()
    tale.crash_and_start()
    tale.apply()
    tale.start(ids[2])
    tale.apply()
    tale.checkpoint()
    tale.end(ids[2])
    tale.commit()
    tale.checkpoint()


# Settings of the queue, written before the story begins.
SETTINGS = {"joined": {"unique": {"scope": "window", "seconds": 3600}}}
# Faults, in strace's words.
FAULTS = {
    "journal_failed": ("fdatasync:error=EIO:when=3",),
    "killed_in_doubt": ("fdatasync:error=EIO:when=3",),
    "folders_failed": ("syncfs:error=EIO:when=1",),
}


def main(name: str, root: Path) -> None:
    take_marks()
    with in_small(BEFORE):
        tale = Tale(root)
        if name.isdecimal():
            Wanderer(tale, int(name)).wander()
        else:
            STORIES[name](tale)


STORIES: dict[str, Callable[[Tale], None]] = {
    one.__name__: one
    for one in (
        accepted,
        attached,
        ran,
        hurried,
        held,
        waited,
        ranked,
        checkpointed,
        lagged,
        sealed,
        removed,
        steered,
        rode,
        deposited,
        restarted,
        parked,
        decided,
        chained,
        joined,
        leased,
        journal_failed,
        killed_in_doubt,
        folders_failed,
    )
}

# Those in which one process owns the queue from the first to the last.
ONE_START = ("checkpointed", "sealed", "decided")

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
