"""The processes that a script leaves behind when it ends: seen, and ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping
from pathlib import Path

from rq.logs import fields
from rq.proc import lease_holders, locks
from rq.proc.family import Family
from rq.scripts.script import KILL, TERM, Script
from rq.scripts.slots import Slot

AGAIN = 1.0  # seconds until the next search when one could not be made
PAUSE = 2.0  # seconds between attempts to end what does not end

log = logging.getLogger(__name__)


def may_be_left(
    script: Script, slot: Slot, path: Path, thoroughly: bool, family: Family
) -> bool:
    """Whether something of a script that has ended may live on; what is seen at once is
    sent TERM. `path`: the file of its slot.

    A child that has left the process group and dropped the lease is not seen so: if
    `thoroughly`, and we have children that we did not start, it is to be searched for.
    """
    try:
        left = script.has_children() or locks.is_slot_taken(path)
    except OSError as error:
        log.warning("what a script has left cannot be seen at once: %s", error)
        return not family.is_alone()
    if left:
        log.warning(
            "a script has left processes behind; RQ ends them: %s",
            fields(lease=slot.lease, pid=script.pid),
        )
        script.signal_left(TERM)
        return True
    return thoroughly and not family.is_alone()


async def end_all(
    script: Script,
    slot: Slot,
    path: Path,
    grace: float,
    holders: MutableMapping[int, str],
) -> None:
    """Return when no process of a script that has ended is found and its slot is free:
    one that hides may be at work on the message. `holders` tells meanwhile, by slot, who
    holds it. `grace`: seconds from TERM to KILL."""
    loop = asyncio.get_running_loop()
    while holder := await _end(loop, slot, path, grace):
        if holders.get(slot.number) != holder:
            log.error(
                "a slot is not free; its message stays in run: %s",
                fields(lease=slot.lease, reason=holder),
            )
        holders[slot.number] = holder
        script.signal_left(KILL)  # in its group no process can hide
        await asyncio.sleep(PAUSE)
    holders.pop(slot.number, None)


async def _end(
    loop: asyncio.AbstractEventLoop, slot: Slot, path: Path, grace: float
) -> str:
    """End all that has the lease of a slot, within `grace` seconds; return, in a
    sentence, who holds the slot all the same."""
    while True:
        try:
            return await loop.run_in_executor(
                None, lease_holders.clear, slot.lease, path, slot.since, grace
            )
        except OSError as error:  # no descriptors, say: no search was made
            log.error("cannot end what a script left; RQ tries again: %s", error)
            await asyncio.sleep(AGAIN)
