"""The last word of a script that runs for long: said once, and in time when its queue
stops."""

from __future__ import annotations

import os
import signal
import threading

from rq.errors import RQError
from rq.layout import Root
from rq.rpc import client
from rq.scripts import python as script
from rq.scripts.pipe import Verb

_LOOK = 1.0  # seconds between looks at the queue


class LastWord:
    """The last word to the queue: the first thread that has one says it, the others not."""

    def __init__(self) -> None:
        self._free = threading.Lock()

    @property
    def is_said(self) -> bool:
        return self._free.locked()

    def say(self, verb: Verb, text: str) -> bool:
        """Say it, unless it was said; return whether it was said now."""
        if not self._free.acquire(blocking=False):
            return False
        script.say(verb, text)
        return True


def begin_watch(root: Root, queue: str, last: LastWord) -> None:
    """From now on let this process have TERM when its queue stops, which would else wait
    until its grace is over; the message runs again, uncounted."""
    threading.Thread(target=_watch, args=(root, queue, last), daemon=True).start()


def _watch(root: Root, queue: str, last: LastWord) -> None:
    socket = root.queue(queue).socket
    pause = threading.Event()
    while not pause.wait(_LOOK):
        try:
            stops = client.demanded(client.ask(socket, "detail"))["stopping"]
        except RQError:
            continue  # the next owner of the queue ends this process
        if stops and last.say(Verb.LATER, "0-cut short by a stop of the queue"):
            # To the main thread, lest it hear of the end of Java before we are through.
            os.kill(os.getpid(), signal.SIGTERM)
