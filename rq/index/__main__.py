"""The program: reads on when an owner says that there is more, and now and then."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import sqlite3
import sys
import time

from rq import config
from rq.errors import RQError
from rq.index import word
from rq.index.keeper import Keeper
from rq.rpc import helper
from rq.rpc.helper import Helper

NICEST = 19
PACE = 0.4  # seconds between two batches that owners have asked for
AGAIN = 10.0  # seconds until it goes on after a failure
_MOST_WORDS = 1000  # that are read at once

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    try:
        started = helper.start("index", argv)
        settings = config.read_root(started.root)
        kept = settings.index
        if kept is None:
            started.refuse('the index is off: config/config.json says "index": false')
            return 1
        yield_to_others()
        sock = word.listen(started.root)
        started.say_ready()
        keeper = Keeper(
            started.root,
            days=kept["days"],
            limit=kept["bytes"],
            least=settings.min_free_bytes,
        )
    except (RQError, OSError, sqlite3.Error) as error:
        sys.stderr.write(f"rq-index: {error}\n")
        return 1
    _run(started, keeper, sock)
    return 0


def yield_to_others() -> None:
    """Take only the processor time that is left over: behind owners, and behind scripts,
    which are nice. A machine that is busy for good still gives it a small share."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.nice(NICEST)


def _run(started: Helper, keeper: Keeper, sock: socket.socket) -> None:
    pause = 0.0
    while _rest(sock, started.life_fd, pause):
        try:
            _hear(sock, keeper)
            pause = keeper.step()
        except (OSError, sqlite3.OperationalError) as error:
            log.warning("the index cannot be written now: %s", error)
            pause = AGAIN
            time.sleep(1.0)
        except sqlite3.DatabaseError as error:
            log.warning("the index is damaged: %s", error)
            keeper.make_again()
            pause = 0.0
        except Exception:
            log.exception("a step failed")
            pause = AGAIN


def _rest(sock: socket.socket, life_fd: int | None, seconds: float) -> bool:
    """Wait for a word, for some seconds at most; False when the supervisor is gone."""
    waiting = [fd for fd in (sock.fileno(), life_fd) if fd is not None]
    ready, _, _ = select.select(waiting, [], [], seconds)
    if sock.fileno() in ready and life_fd not in ready:
        time.sleep(PACE)  # more words come: one batch takes what they are about
    return life_fd not in ready


def _hear(sock: socket.socket, keeper: Keeper) -> None:
    for _ in range(_MOST_WORDS):
        try:
            data = sock.recv(word.LONGEST)
        except BlockingIOError:
            return
        if word.asks_rebuild(data):
            keeper.make_again()
        elif (said := word.decoded(data)) is not None:
            keeper.hear(said)
        elif (queue := word.config_of(data)) is not None:
            keeper.hear_of_config(queue)


if __name__ == "__main__":
    sys.exit(main())
