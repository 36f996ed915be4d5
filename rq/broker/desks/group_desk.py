"""Events of bananaq, and the consumers that wait for them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rq.broker.desks.outlet import Outlet
from rq.broker.state import groups
from rq.broker.state.groups import Came, EventQueues, Got
from rq.broker.state.waiters import Waiter, Waiters
from rq.resp import Value

_AT_ONCE = 1_000  # clients that are answered in one go


@dataclass(frozen=True, slots=True)
class Getting:
    """What a client of bananaq waits for."""

    group: bytes
    seconds: float  # that it has for an event
    only_told: bool = False  # it asks in which queue there is one


class GroupWaiters(Waiters[Getting]):
    """Clients that wait for events, and of which groups they are."""

    def __init__(self) -> None:
        super().__init__(None)
        self._groups: dict[bytes, Counter[bytes]] = {}

    def _put_in(self, waiter: Waiter[Getting], queue: bytes) -> None:
        super()._put_in(waiter, queue)
        self._groups.setdefault(queue, Counter())[waiter.want.group] += 1

    def _clear(self, waiter: Waiter[Getting], queues: Sequence[bytes]) -> None:
        super()._clear(waiter, queues)
        for queue in queues:
            self._leave(queue, waiter.want.group)

    def _leave(self, queue: bytes, group: bytes) -> None:
        groups_at = self._groups[queue]
        groups_at[group] -= 1
        if not groups_at[group]:
            del groups_at[group]
        if not groups_at:
            del self._groups[queue]

    def groups_at(self, queue: bytes) -> Mapping[bytes, int]:
        """Return the groups that wait at a queue, and how many clients of each."""
        return self._groups.get(queue, {})


class GroupDesk:
    """Hands events to groups."""

    def __init__(self, outlet: Outlet) -> None:
        self.queues = EventQueues()
        self.waiters = GroupWaiters()
        self.unserved: dict[
            bytes, None
        ] = {}  # queues at which more clients can be served
        self._outlet = outlet

    def get(
        self, name: bytes, getting: Getting, client: int, now: float
    ) -> Came | None:
        """Hand the next event of a queue to a client; without seconds its group is done
        with it."""
        group, seconds = getting.group, getting.seconds
        queue = self.queues.by_name.get(name)
        event = None if queue is None else queue.next_for(group)
        if event is not None:
            until = now + seconds if seconds else 0.0
            got = Got(name, group, event.number, until)
            self._outlet.emit(got, now, sync=not seconds)
            self._outlet.hand(client, partial(self.take_back, got))
        return event

    def take_back(self, got: Got, now: float) -> None:
        """A client was handed an event, and cannot have had a byte of the answer: its
        group has it next. For that its time is over at once."""
        queue = self.queues.by_name.get(got.queue)
        group = None if queue is None else queue.groups.get(got.group)
        if queue is None or group is None or got.number not in queue.events:
            return
        wake = group.in_progress.get(got.number)
        if got.until and (wake is None or wake.at != got.until):
            return  # it was acknowledged, or handed out again
        self._outlet.emit(got._replace(until=now), now)

    def serve(self, name: bytes, now: float) -> None:
        """Answer those who wait for an event of a queue, if there is one for them; all
        but the first of a crowd are answered in the next ticks."""
        queue, most = self.queues.by_name.get(name), _AT_ONCE
        self.unserved.pop(name, None)
        if queue is None:
            return
        served: set[bytes] = set()  # groups for which there is nothing more
        for waiter in self.waiters.at(name):
            if len(served) == len(self.waiters.groups_at(name)):
                return
            getting = waiter.want
            if getting.group in served:
                continue
            if queue.next_for(getting.group) is None:
                served.add(getting.group)
                continue
            if not most:
                self.unserved[name] = None
                return
            most -= 1
            self.waiters.remove(waiter.client)
            if self._outlet.is_there(waiter.client):
                self._answer(waiter, name, now)

    def _answer(self, waiter: Waiter[Getting], name: bytes, now: float) -> None:
        """Tell a client that there is an event of a queue for it, or hand it that."""
        if waiter.want.only_told:
            self._outlet.answer(waiter.client, name)
            return
        event = self.get(name, waiter.want, waiter.client, now)
        if event is not None:
            answer: list[Value] = [groups.text_of(event), event.contents]
            self._outlet.answer(waiter.client, answer)

    def tick(self, now: float, most: int) -> None:
        """End what is over by now, and serve clients that wait for what comes again."""
        for name in self.unserved:
            self.serve(name, now)
            break
        for name in dict.fromkeys(self.queues.settle(now, most)):
            self.serve(name, now)
        self.queues.let_groups_go()
        if self.queues.freeing:
            self.queues.freeing.go_on()
