"""The agent as a process: joins its parts, runs it, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

from rq.errors import Unreachable
from rq.logs import fields
from rq.message.limits import stricter
from rq.outbound.host import Host
from rq.proc import daemon, descriptors, turnlimit
from rq.scripts.time_limits import TimeLimits
from rq.scripts.worker_protocol import Limits as WorkerLimits
from rq.words.wording import duration
from rq.work import holding, stop_signals
from rq.work.agent import Agent, Limits
from rq.work.attempt import Attempt
from rq.work.definition import Definition
from rq.work.delivery import Delivery
from rq.work.folder import Sweeper
from rq.work.guard import Guard
from rq.work.lease_work import LeaseWork, Runner
from rq.work.link import Link
from rq.work.load import Load
from rq.work.once import Once, Tools
from rq.work.options import Options
from rq.work.place import Place, open_place
from rq.work.pool import Pool
from rq.work.service import Service
from rq.work.shared_script import SharedScript
from rq.work.watch import Watch
from rq.work.words import Words

GUARDED = 1.0  # seconds between looks at whether the guard lives

log = logging.getLogger(__name__)


def run(options: Options) -> None:
    """Work on messages until told to end; RQError when the queue's host gives none."""
    descriptors.own_descriptors()
    daemon.own_signals()
    descriptors.raise_descriptor_limit()
    turnlimit.watch()
    daemon.title(f"rq-work {options.to.queue}")
    descriptors.park_descriptors()
    place = open_place(options.base, options.to)
    os.chdir("/")
    os.umask(0o027)
    try:
        asyncio.run(_live(options, place))
    finally:
        place.close()


async def _live(options: Options, place: Place) -> None:
    alive = asyncio.create_task(_lives(options, place))
    stop_signals.call_when_told(alive.cancel)
    try:
        await asyncio.wait({alive})
        if not alive.cancelled():
            alive.result()
    finally:
        stop_signals.hear_no_more()
    log.info("ended")


async def _lives(options: Options, place: Place) -> None:
    host = Host(options.to, options.peer, holding.now)
    service = Service(options.to, Link(host.ask, options.to.peer), options.about())
    try:
        async with _script(options, place, service) as shared:
            directory = options.script or shared.directory
            definition = Definition(directory, place.path, options.to)
            shared.followers.append(definition.use)
            agent = _agent(options, place, service, definition)
            async with _guarded(place.path, definition):
                await _work(agent, options)
    finally:
        host.close()


@contextlib.asynccontextmanager
async def _script(
    options: Options, place: Place, service: Service
) -> AsyncIterator[SharedScript]:
    """Have the queue's script, as long as the block runs; RQError when it shares none, or
    when its host does not answer for as long as the agent is to work."""
    shared = SharedScript(service, place.path / "script")
    if options.script is not None:
        yield shared
        return
    try:
        async with asyncio.timeout(options.seconds):  # it is asked again without end
            await shared.fetch()
    except TimeoutError:
        raise Unreachable(
            f"{options.to.peer} has not given the script of queue {options.to.queue} in "
            f"{duration(options.seconds or 0.0)}, for which this agent was to work"
        ) from None
    following = asyncio.create_task(shared.follow())
    try:
        yield shared
    finally:
        following.cancel()


@contextlib.asynccontextmanager
async def _guarded(path: Path, definition: Definition) -> AsyncIterator[None]:
    """Let scripts die with this process, however it ends."""
    guard = Guard(path, definition.family)

    async def replace_dead() -> None:
        nonlocal guard
        while True:
            await asyncio.sleep(GUARDED)
            if not guard.lives:
                log.warning("the guard of this agent has ended; another one starts")
                guard = Guard(path, definition.family)

    task = asyncio.create_task(replace_dead())
    try:
        yield
    finally:
        task.cancel()
        guard.end()


def _agent(
    options: Options, place: Place, service: Service, definition: Definition
) -> Agent:
    words, held, load = Words(service), dict[str, Attempt](), Load(options.slots)
    delivery = Delivery(place, service, words)
    work = LeaseWork(
        delivery=delivery,
        definition=definition,
        runner=_runner(options, place, definition),
        slots=asyncio.Semaphore(options.slots),
        load=load,
        sweeper=Sweeper(),
    )
    watch = Watch(held, delivery, options.grace, options.goes_on)
    limits = Limits(once=options.once, seconds=options.seconds, grace=options.grace)
    return Agent(place, work, watch, held, limits)


def _runner(options: Options, place: Place, definition: Definition) -> Runner:
    config = definition.config
    tools = Tools(
        program=definition.program,
        slots=place.slots(),
        dir_fd=place.dir_fd,
        grace=options.grace,
        leave_children=config.leave_children,
        loop=asyncio.get_running_loop(),
        time_limits=TimeLimits(asyncio.get_running_loop()),
        own_limits=lambda: stricter(definition.config.limits),
    )
    if not definition.is_persistent:
        return Once(tools)
    limits = WorkerLimits(config.worker_messages, config.worker_seconds)
    return Pool(tools, limits)


async def _work(agent: Agent, options: Options) -> None:
    stop_signals.call_when_told(agent.stop)
    log.info(
        "ready: %s",
        fields(queue=options.to.queue, host=options.to.peer, slots=options.slots),
    )
    await agent.run()
