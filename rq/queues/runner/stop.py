"""The stop of a queue's scripts: first they may end, then they have to."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import Executor

from rq.proc import lease_holders
from rq.queues.runner.runner import Runner
from rq.scripts.script import KILL, TERM

LOOK = 0.02  # seconds between looks at whether all have ended
AFTER_TERM, AFTER_KILL = 5.0, 30.0  # seconds, at most, that they are waited for then


async def stop(runner: Runner) -> None:
    """Wait for scripts to end, then end them: grace, TERM, KILL; all have ended after."""
    grace = runner.owner.settings.grace
    runner.pool.renew()
    if await _idle(runner, grace):
        return
    runner.cut_short()
    runner.signal_all(TERM)
    if await _idle(runner, min(grace, AFTER_TERM)):
        return
    runner.signal_all(KILL)
    await _idle(runner, AFTER_KILL)


async def end_all(runner: Runner, threads: Executor) -> None:
    """End scripts at once, TERM and then KILL, without waiting for a word of theirs: what
    they say cannot be kept. Processes that have left their groups are found by their
    leases, so that none runs beside its attempt after this one."""
    owner = runner.owner
    runner.cut_short()
    runner.signal_all(TERM)
    prefix = owner.opened.lease_prefix
    grace = min(owner.settings.grace, AFTER_TERM)
    search = owner.loop.run_in_executor(
        threads, lease_holders.end_processes, prefix, (), grace, None, AFTER_KILL
    )
    for holder in await search:
        os.close(holder.pidfd)


async def _idle(runner: Runner, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not runner.idle:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(LOOK)
    return True
