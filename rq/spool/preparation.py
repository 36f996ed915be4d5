"""Makes messages in prep: a folder alone, or in a transaction by a line."""

from __future__ import annotations

from collections.abc import Callable

from rq import durable
from rq.layout import MSG, folder
from rq.message import Message
from rq.message.rank import prior
from rq.spool.entry import Entry
from rq.spool.events import Events
from rq.spool.lag import Lag
from rq.spool.memory import Memory
from rq.states import Event, Role, State, next_state


class Preparation:
    """Prepares the messages of one queue."""

    def __init__(
        self,
        dir_fd: int,
        memory: Memory,
        lagging: Lag,
        events: Events,
        clock: Callable[[], float],
    ) -> None:
        self._dir_fd = dir_fd
        self._memory = memory
        self._lagging = lagging
        self._events = events
        self._clock = clock

    def prepare(self, message: Message) -> None:
        """Make a folder in prep; not yet promised, so no line."""
        msg_id, body = message.msg_id, message.encode_new()
        path = folder(State.PREP, msg_id)
        durable.make_dir(path, self._dir_fd)
        try:
            durable.write_new(f"{path}/{MSG}", body, self._dir_fd)
        except OSError:
            self._take_back(msg_id)
            raise
        next_state(State.NOWHERE, Event.PREPARE, Role.CREATOR)
        entry = Entry(State.PREP, State.PREP, message.due, 0, since=self._clock())
        entry.rank = prior(message.priority, entry.rank)
        self._memory.entries[msg_id] = entry
        self._memory.counts.moved(State.NOWHERE, State.PREP)
        self._events.tell(msg_id, State.NOWHERE)

    def _take_back(self, msg_id: str) -> None:
        """Remove the half-made folder of a message that is refused; tried again until
        the disk allows it. No line tells of it: a start sees that it is half made."""
        entry = Entry(State.GONE, State.PREP, 0.0, 0)
        self._memory.entries[msg_id] = entry
        self._lagging.add(msg_id, entry)

    def prepare_in(self, txn_id: str, message: Message) -> None:
        """Prepare a message in a transaction, or give it new content; the line holds
        the whole of it, for the decision will name its id only."""
        msg_id, event = message.msg_id, Event.PREPARE
        line = self._events.fire(
            msg_id, event, Role.CREATOR, message=message, txn=txn_id
        )
        self._memory.entries[msg_id].since = self._clock()
        self._memory.txns.take(line)
        self._lagging.put_off(msg_id)
