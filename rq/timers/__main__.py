"""The program: one event loop, one socket, and looks at the directory.

scandir says `wake` when something in it, or the set of queues, has changed. What nothing
tells is that the wall clock was set, or that scandir is gone; so there is a look now and
then, and one each second while something goes on or is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import sys
import time
from collections.abc import Sequence

from rq import config
from rq.access import sockets
from rq.config import files
from rq.config.notices import Daily
from rq.errors import BadConfig, RQError
from rq.proc import turnlimit
from rq.rpc import client, helper, wire
from rq.rpc import server as control
from rq.rpc.helper import Helper
from rq.timers import commands
from rq.timers.folder import Timers
from rq.timers.letter import Letter
from rq.timers.sending import LOOK, Sending
from rq.timers.state import read_state
from rq.timers.troubles import Troubles

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    try:
        started = helper.start("timers", argv)
        held = Timers(started.root, read_state(started.root))
    except (RQError, OSError) as error:
        sys.stderr.write(f"rq-timers: {error}\n")
        return 1
    turnlimit.watch()
    asyncio.run(_run(started, Sending(held)))
    return 0


async def _run(started: Helper, timers: Sending) -> None:
    stopped = asyncio.Event()

    def stop() -> None:
        stopped.set()
        timers.woken.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if started.life_fd is not None:
        loop.add_reader(started.life_fd, stop)
    sock = client.listen(started.root.timers_socket)
    answer = functools.partial(commands.answer, timers)
    server = control.Server(sock, _policy(started), answer, wire.MAGIC2)
    server.start()
    started.say_ready()
    letter = Letter(timers.held, _daily(started))
    troubles = Troubles(started.root, _told_of_trouble(started))
    while not stopped.is_set():
        timers.woken.clear()
        try:
            _pass(timers, letter)
            troubles.look(time.monotonic())
        except Exception:
            log.exception("a pass failed; the next one is in a second")
            await asyncio.sleep(LOOK)
        await _rest(timers)
    server.close()
    files.remove_link(started.root.timers_socket)


def _policy(started: Helper) -> sockets.Policy:
    """Return what the socket allows; with a config that cannot be read nothing more."""
    try:
        group = config.read_root(started.root).admin_group
    except BadConfig as error:
        log.warning("%s", error)
        group = None
    return sockets.policy(sockets.TIMERS_OTHERS, group)


def _daily(started: Helper) -> Daily | None:
    """Return what the config says of a letter each morning."""
    try:
        return config.read_root(started.root).daily
    except BadConfig:  # said already
        return None


def _told_of_trouble(started: Helper) -> Sequence[str]:
    """Return whom the config names to be told of troubles."""
    try:
        return config.read_root(started.root).on_trouble
    except BadConfig:  # said already
        return ()


def _pass(timers: Sending, letter: Letter) -> None:
    now = time.time()
    timers.held.watch_clock(now)
    timers.held.look(time.monotonic(), now)
    timers.held.leave_out(now)
    timers.save_errors(time.monotonic())
    timers.held.save()
    timers.telling.look(time.monotonic(), now)
    timers.outcomes.look(time.monotonic(), now)
    for timer in timers.ready(now):
        timers.begin(timer, now)
    if not timers.busy:  # what they missed is known when they have fired
        letter.look(time.monotonic(), now)


async def _rest(timers: Sending) -> None:
    """Wait for the next due time, a look at the directory, or a wake."""
    now, elapsed = time.time(), time.monotonic()
    seconds = min(timers.pause(elapsed), timers.next_due(now) + 0.005)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await timers.woken.wait()
            timers.stirred = time.monotonic()


if __name__ == "__main__":
    sys.exit(main())
