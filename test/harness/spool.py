"""Messages and spools of a test's own: opened, crashed and closed as an owner does it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rq.config.settings import QUEUE, QueueConfig
from rq.journal.writer import Journal
from rq.layout import QueueDir
from rq.message.message import Message, from_request
from rq.queues.owner import uniqueness
from rq.spool import Opened, Spool, check, checkpoint, door, open_spool
from rq.spool.check import close_cleanly
from rq.words.states import Event, Role

ORIGIN = "http://127.0.0.1:3333/q/q/"
NOW = 1_800_000_000.0  # 2027-01-15, 08:00 UTC


def a_message(msg_id: str = "20270115.0800.00.000.1", **fields: Any) -> Message:
    """Return a message as a client asks for it."""
    return from_request({"dest": "q", **fields}, msg_id, NOW, ORIGIN + msg_id)


class Look(NamedTuple):
    """What one look at the door has brought."""

    messages: list[Message]
    left: dict[str, str]


def adopt(spool: Spool, known_left: dict[str, str] | None = None) -> Look:
    """Look at the door once, as the owner does it with threads."""
    messages: list[Message] = []

    async def aside(call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    keeper = door.Keeper(spool, ORIGIN, aside, messages.append, lambda: True)
    looking = door.adopt(keeper, known_left or {})
    try:
        looking.send(None)
    except StopIteration as ended:
        return Look(messages, ended.value.left)
    raise AssertionError("nothing was to be waited for")


def check_live(spool: Spool) -> list[check.Problem]:
    """Check a live queue, as its owner does it with threads and slices."""

    async def aside(call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    async def slices(items: Iterable[Any], act: Callable[[Any], Any]) -> None:
        for one in items:
            act(one)

    try:
        check.check_live(spool, aside, slices).send(None)
    except StopIteration as ended:
        return list(ended.value)
    raise AssertionError("nothing was to be waited for")


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Owner:
    """A queue directory, opened and closed as its owner process does it."""

    def __init__(
        self, path: Path, clock: Callable[[], float] | None = None, name: str = "q"
    ) -> None:
        self.queue = QueueDir(path / "queue" / name)
        self.queue.path.mkdir(parents=True, exist_ok=True)
        self.clock = clock or Clock()
        self._opened: Opened | None = None

    @property
    def spool(self) -> Spool:
        return self.opened.spool

    @property
    def opened(self) -> Opened:
        assert self._opened is not None, "the queue is not open"
        return self._opened

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def open(self, parked_at: tuple[str, int] | None = None) -> Spool:
        """Recover the queue and own it; `parked_at`: where its journal ended, if it was
        parked."""
        config = self._config()
        keys = uniqueness.keys(config)
        self._opened = open_spool(
            self.queue, clock=self.clock, grace=0.1, keys=keys, parked_at=parked_at
        )
        uniqueness.Uniqueness(self._opened.spool, config)
        return self._opened.spool

    def _config(self) -> QueueConfig:
        """Return the setting `unique`, if the queue has a config; a power cut may have
        left half of one that a test has written."""
        try:
            given = json.loads(self.queue.config.read_text()).get("unique", {})
        except (FileNotFoundError, ValueError):
            return QueueConfig()
        return QueueConfig(unique=QUEUE["unique"](given))

    def crash(self) -> None:
        """Forget everything, as kill -9 does: only what was written stays."""
        opened, self._opened = self._opened, None
        if opened is not None:
            journal, fds = opened.spool.journal, [opened.lock]
            if isinstance(journal, Journal):
                fds.append(journal._segments.current.fd)
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
            opened.spool.close()

    def stop(self) -> None:
        """End cleanly."""
        opened = self.opened
        opened.spool.commit()
        close_cleanly(opened.spool)
        self._opened = None
        os.close(opened.lock)
        opened.spool.close()

    def park(self) -> tuple[str, int]:
        """End as a queue does that is parked; return where its journal ends."""
        opened, self._opened = self.opened, None
        opened.spool.commit()
        opened.spool.settle_all()
        checkpoint.park(opened.spool, opened.is_as_found)
        os.close(opened.lock)
        opened.spool.close()
        return opened.spool.journal_id, opened.spool.last_seq

    def again(self) -> Spool:
        """Crash, and recover."""
        self.crash()
        return self.open()

    # ---- what happens to messages, in one word

    def submit(self, **fields: Any) -> str:
        """Accept a message; it is not yet durable."""
        msg_id = self.spool.new_id()
        self.spool.submit(a_message(msg_id, **fields))
        return msg_id

    def end(self, msg_id: str, event: Event = Event.FINISH, **more: Any) -> None:
        """Let a running message end."""
        facts = {"cause": "done", "text": "", "outcome": "done"}
        self.spool.fire(msg_id, event, Role.QUEUE, facts=facts, **more)

    def apply(self) -> None:
        """Make all durable, and all folders."""
        self.spool.commit()
        self.spool.settle_all()

    def checkpoint(self) -> None:
        self.apply()
        point = checkpoint.begin(self.spool, "boot")
        checkpoint.finish(self.spool.dir_fd, self.queue, point)


# ---- the door


def deposit(
    owner: Owner,
    name: str,
    msg: str | None = '{"dest": "q", "param1": "x"}',
    attach: Mapping[str, bytes] | None = None,
) -> Path:
    """Make a folder elsewhere and rename it in, as a depositor does."""
    made = owner.queue.path.parent / f"made-{name}"
    made.mkdir()
    if msg is not None:
        (made / "msg").write_text(msg)
    for file, content in (attach or {}).items():
        (made / "attach").mkdir(exist_ok=True)
        (made / "attach" / file).write_bytes(content)
    return made.rename(owner.queue.path / "new" / name)


def look(owner: Owner) -> list[Message]:
    """Look at the door once; return the messages that came in."""
    adopted = adopt(owner.spool)
    assert adopted.left == {}
    owner.apply()
    assert check_live(owner.spool) == []
    assert os.listdir(owner.queue.path / "new") == []
    return adopted.messages
