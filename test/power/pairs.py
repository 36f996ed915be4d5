"""Judges a sender after a power cut beside the receiver that it was handing over to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.spool import Owner
from power.disk import Disk
from power.proving import Way, recorded_kills
from power.recovering import Recovered, look, recover
from power.tale import NOWHERE, Seen

from rq import config
from rq.errors import RQError
from rq.layout import JOB, Root
from rq.relay import store, task

STORY = Path(__file__).with_name("relay_story.py")
LOGS = ("sender/log", "receiver/log")
NOT_ACCEPTED = (NOWHERE, "prep")


def recorded_pair(scratch: Path) -> Disk:
    """Record a sender and a receiver at work."""
    return recorded_kills(STORY, scratch=scratch, besides=LOGS)


def recover_pair(root: Path) -> Recovered:
    """Recover the sender after a power cut, the receiver as it was."""
    found = recover(root / "sender", ("relay",))
    there = Recovered()
    if (root / "receiver/queue/sink").is_dir():
        sink = Owner(root / "receiver", name="sink")
        sink.open()
        there.seen = look(sink, there)
        sink.crash()
    found.seen |= {f"sink/{token}": one for token, one in there.seen.items()}
    found.troubles += there.troubles
    try:
        found.troubles += _handed_over(root / "sender", found, there)
    except (RQError, OSError) as error:
        found.troubles.append(f"what it will do cannot be told: {error!r}")
    return found


def _handed_over(root: Path, found: Recovered, there: Recovered) -> Iterator[str]:
    """A message that was relayed is there, and one that is sent again is known there."""
    for token, seen in found.seen.items():
        copy = there.seen.get(token.removeprefix("relay/"), Seen())
        accepted = copy.state not in NOT_ACCEPTED
        if seen.state == "relayed" and not accepted:
            yield f"{token} was relayed, and the receiver has not accepted it"
        if seen.state == "que" and accepted:
            found.handed.append(token)
            if (key := _key(root, found.ids[token], seen)) != copy.key:
                yield f"{token} will be sent again as {key}, and is there as {copy.key}"


def _key(root: Path, msg_id: str, seen: Seen) -> str:
    """Return the key that the sender will use when it tries again."""
    home = Root(root)
    job = home.queue("relay").path / "que" / msg_id / JOB
    full_id = config.read_root(home).full_id("relay", msg_id)
    env = {"RQ_ROOT": str(root), "RQ_MSG_ID": msg_id, "RQ_FULL_MSG_ID": full_id}
    env["RQ_COUNT"] = str(seen.count)
    again = store.Store(job).stored.again
    return task.key(task.read(env, job), store.installation(home), again)


PAIR = Way(recover=recover_pair, spared="receiver")
