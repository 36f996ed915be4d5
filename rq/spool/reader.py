"""Reads a message and its state: from memory while it is live, else from its folder."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from rq.errors import NoSuchMessage
from rq.files.beneath import Stamp
from rq.layout import MSG, folder
from rq.message.message import Message, from_disk
from rq.replies import Result
from rq.spool import after_list, folders
from rq.spool.entry import Entry
from rq.spool.memory import Memory
from rq.words.states import State


class Reader:
    """Reads the messages of one queue."""

    def __init__(self, memory: Memory, dir_fd: int, clock: Callable[[], float]) -> None:
        self._entries = memory.entries
        self._dir_fd = dir_fd
        self._clock = clock

    def find(self, msg_id: str) -> State | None:
        """Return the state of a message; None if there is none."""
        entry = self._entries.get(msg_id)
        if entry is not None:
            return None if entry.state is State.GONE else entry.state
        return folders.find_final(self._dir_fd, msg_id)

    def state_of(self, msg_id: str) -> State:
        """As `find`; NoSuchMessage if there is none."""
        state = self.find(msg_id)
        if state is None:
            raise NoSuchMessage("msg not found")
        return state

    def place(self, msg_id: str) -> str | None:
        """Return where the folder of a message lies now, relative to the queue."""
        entry = self._entries.get(msg_id)
        if entry is None:
            state = folders.find_final(self._dir_fd, msg_id)
            return None if state is None else folder(state, msg_id)
        return entry.place(msg_id)

    def read(self, msg_id: str) -> Message:
        """Return a message; NoSuchMessage, BadMessage when its file is torn, or Unread
        when that is not known yet."""
        return self.read_stamped(msg_id)[0]

    def read_stamped(self, msg_id: str) -> tuple[Message, Stamp | None]:
        """As `read`; also return the stamp of the file that it was read from. None: what
        it is in memory is not written yet."""
        entry = self._entries.get(msg_id)
        if entry is not None and entry.body is not None:
            return self._in_memory(msg_id, entry, entry.body), None
        path = self.place(msg_id)
        if path is None:
            raise NoSuchMessage("msg not found")
        try:
            data, stamp = folders.read_stamped(f"{path}/{MSG}", self._dir_fd)
        except OSError as error:
            raise folders.unread(error) from None
        message = from_disk(data, msg_id, self._clock())
        if message.after_file is not None:
            message = after_list.whole(message, path, self._dir_fd)
        return message, stamp

    def _in_memory(self, msg_id: str, entry: Entry, body: bytes) -> Message:
        message = from_disk(body, msg_id, self._clock())
        if message.after_file is None:  # as nearly all
            return message
        if entry.after is not None:
            return message.with_(after=entry.after.ids)
        return after_list.whole(message, entry.place(msg_id), self._dir_fd)

    def status(self, msg_id: str) -> Result:
        """Return what is known of the last attempt of a message."""
        entry = self._entries.get(msg_id)
        if entry is not None and entry.status is not None:
            status: Result = orjson.loads(entry.status)
            return status
        path = self.place(msg_id)
        return {} if path is None else folders.read_status_at(path, self._dir_fd)

    def free_id(self, wanted: str) -> bool:
        """Return whether no message has the id `wanted`, in any state."""
        return wanted not in self._entries and self.find(wanted) is None
