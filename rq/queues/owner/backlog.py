"""The messages that wait in que: which runs next, and what each of the others waits
for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Unpack

from rq.config.settings import QueueConfig
from rq.errors import BadMessage, NoSuchMessage, Unread, WrongState
from rq.message.fields import JsonObject
from rq.message.message import Message
from rq.message.retry import most_tries
from rq.queues.owner.ranks import Ranks
from rq.queues.owner.start_rate import StartRate
from rq.queues.schedule import batch_rule, coalesce
from rq.queues.schedule.batch_rule import Gathering, Rule
from rq.queues.schedule.coalesce import Groups
from rq.queues.schedule.exclusion import Places
from rq.queues.schedule.line import Item
from rq.queues.schedule.predecessors import Predecessors
from rq.queues.schedule.waiting import Waiting, turn
from rq.spool import Spool
from rq.spool.entry import Entry
from rq.spool.record import More
from rq.words.states import Role, State

MOST_RIDERS = 1000  # their ids stand in one line of the journal
_NO_BATCHES = Rule(1, 0.0)


class Backlog:
    """The messages of a queue that wait: the rules of `schedule` applied to its spool."""

    def __init__(self, spool: Spool, config: QueueConfig) -> None:
        self._spool = spool
        self._config = config
        spool.deadline = config.deadline
        self._groups = Groups()
        self._riders: dict[str, dict[str, None]] = {}  # leader: its riders
        # Messages that a person holds, or that wait for others.
        self._held: dict[str, None] = {}
        self.predecessors = Predecessors(spool.standings)
        self.busy_keys = Places(config.most_of_key)
        self.gathering = Gathering(_NO_BATCHES)  # messages that wait for a batch
        self._ranks = Ranks(spool, config, self._groups)
        self._rate = StartRate(spool, config.rate)
        self.waiting = self._new_waiting()
        self._fill()
        self._fill_predecessors()

    def _fill_predecessors(self) -> None:
        now = self._spool.clock()
        for msg_id, entry in self._spool.in_state(State.QUE):
            if entry.after is not None:
                self.predecessors.add(msg_id, entry.after, now)
        self.predecessors.forget_strangers()

    def _new_waiting(self) -> Waiting:
        ranks = self._ranks
        return Waiting(ranks.is_valid, self._dest_of, self._leader_of, ranks.of)

    # ---- filling

    def _fill(self) -> None:
        """Take all messages in que into the schedule and into groups."""
        self._schedule()
        self._groups.clear()
        compared = self._spool.compares
        self._spool.compares = self._config.coalesce_params
        if not self._config.coalesce_params:
            return
        que = [pair for pair in self._in_que() if pair[1].may_run]
        for msg_id, entry in sorted(que, key=lambda pair: pair[1].seq):
            if entry.key is not None and compared == self._spool.compares:
                self._join(entry.key, msg_id, entry)  # its file need not be read
            else:
                self._group(msg_id, entry)

    def _in_que(self) -> Iterator[tuple[str, Entry]]:
        """Give all messages in que. There may be a million: a list of pairs would leave
        holes in memory where it was."""
        return self._spool.in_state(State.QUE)

    def _schedule(self) -> None:
        """Take all messages in que into the schedule."""
        self._ranks.fill(self._in_que())
        self._held = {msg_id: None for msg_id, e in self._in_que() if not e.may_run}
        now = self._spool.clock()
        for _, entry in self._in_que():
            entry.due = _due(
                entry, now
            )  # also of one that is held, and released one day
        self.waiting = self._new_waiting()
        self.waiting.fill(
            (Item(entry.due, entry.seq, msg_id), self._ranks.of(msg_id))
            for msg_id, entry in self._in_que()
            if entry.may_run
        )
        self.gathering = Gathering(batch_rule.rule(self._config.batch) or _NO_BATCHES)

    def reload(self, config: QueueConfig) -> None:
        """Go on by other settings."""
        old, self._config = self._config, config
        self._spool.deadline = config.deadline
        self._ranks.reload(config)
        self.busy_keys.most = config.most_of_key
        self._rate.reload(config.rate)
        self.waiting.release_all()
        if _rule(old) != _rule(config):
            for leader in list(self._riders):
                self.release_riders(leader)
            self._fill()

    def clock_went_back(self) -> None:
        """Work out again until when each message waits."""
        self._schedule()

    def due_of(self, msg_id: str) -> float:
        """Return when a message in que may run, also when the clock was put back so lately
        that nothing has been worked out again."""
        return _due(self._spool.entry(msg_id), self._spool.clock())

    # ---- coming and going

    def put(self, msg_id: str, message: Message | None = None) -> None:
        """Take a message that has come into que into the schedule."""
        entry = self._spool.entry(msg_id)
        if entry.rider_of is not None:
            entry.rider_of = None
        self._ranks.add(msg_id, entry, message)
        if entry.after is not None:
            self.predecessors.add(msg_id, entry.after, self._spool.clock())
        if not entry.may_run:
            self._held[msg_id] = None
            return
        rank = None if msg_id in self._ranks.hurried else entry.rank
        self.waiting.add(Item(entry.due, entry.seq, msg_id), rank)
        if self._config.coalesce_params:
            self._group(msg_id, entry, message)

    def put_back(self, msg_id: str) -> None:
        """Put a message back that was due, and could not be claimed."""
        entry = self._spool.entry(msg_id)
        self.waiting.add(Item(entry.due, entry.seq, msg_id))

    def remove(self, msg_id: str) -> None:
        """Forget a message that leaves que."""
        if self.predecessors:
            self.predecessors.remove(msg_id)
        self._take_out(msg_id)

    def _take_out(self, msg_id: str) -> None:
        """Take a message out of the schedule, its batch and its group."""
        self.gathering.remove(msg_id)
        self._ranks.hurried.discard(msg_id)
        self._held.pop(msg_id, None)
        entry = self._spool.entry_of(msg_id)
        if entry is None:
            return
        if entry.key is not None:
            self._groups.remove(entry.key, msg_id)
            entry.key = None
        if entry.rider_of is not None:
            self._riders.get(entry.rider_of, {}).pop(msg_id, None)
            entry.rider_of = None

    def run_now(self, msg_id: str) -> None:
        """Put a message in que before all others."""
        entry = self._check_steerable(msg_id)
        if entry.held:
            raise WrongState("msg is held: release it first")
        if entry.after is not None:
            raise WrongState("msg waits for other messages: release it with `--after`")
        first = self.first_due()
        now = self._spool.clock()
        due = max(0.0, min(now, (now if first is None else first) - 1.0))
        self._ranks.hurried.add(msg_id)
        self._spool.reschedule(msg_id, due)
        self.put_back(msg_id)
        self.waiting.hurry(msg_id)

    def steer(
        self,
        msg_id: str,
        *,
        due: float | None = None,
        priority: int | None = None,
        **more: Unpack[More],
    ) -> None:
        """Change when a message in que runs; None: that stays. WrongState: it has left
        que, or ends with another message."""
        self._check_steerable(msg_id)
        self._spool.reschedule(msg_id, due, priority=priority, **more)
        self.gathering.remove(msg_id)
        self._ranks.hurried.discard(msg_id)
        self.put_back(msg_id)
        entry = self._spool.entry(msg_id)
        if entry.key is not None:
            self._join(entry.key, msg_id, entry)

    def _check_steerable(self, msg_id: str) -> Entry:
        entry = self._spool.entry_of(msg_id)
        if entry is None or entry.state is not State.QUE or entry.rider_of:
            raise WrongState("msg not in runnable state")
        return entry

    # ---- held by a person

    def hold(self, msg_id: str, hold: JsonObject, **more: Unpack[More]) -> bool:
        """Hold a message in que until `release`; False: it is held already."""
        entry = self._waiting_entry(msg_id, "held")
        if entry.held:
            return False
        self._spool.hold(msg_id, hold, **more)
        self._take_out(msg_id)  # it rides with no other, and is in no batch
        self._held[msg_id] = None
        return True

    def release(self, msg_id: str, who: str, **more: Unpack[More]) -> bool:
        """Release a message that was held; False: it is not."""
        if not self._waiting_entry(msg_id, "released").held:
            return False
        self._spool.release(msg_id, who, **more)
        self._held.pop(msg_id, None)
        self.put(msg_id)
        return True

    def free(self, msg_id: str, end: JsonObject, role: Role = Role.QUEUE) -> bool:
        """Let a message wait for no others any more; False: it does not."""
        if self._waiting_entry(msg_id, "freed").after is None:
            return False
        self._spool.free(msg_id, end, role)
        self.predecessors.remove(msg_id)
        self._held.pop(msg_id, None)
        self.put(msg_id)
        return True

    def _waiting_entry(self, msg_id: str, what: str) -> Entry:
        state = self._spool.state_of(msg_id)
        if state is not State.QUE:
            raise WrongState(
                f"only messages that wait can be {what}: msg is in {state}"
            )
        return self._spool.entry(msg_id)

    # ---- what runs next

    def in_order(self, most: int) -> list[str]:
        """Return up to `most` waiting messages in the order in which they run, as far as
        that is known now; those that are held come last."""
        waiting = self.waiting.in_order(self._spool.clock())
        everyone = chain(self.gathering, filter(self._is_free, waiting), self._held)
        return list(islice(dict.fromkeys(islice(everyone, most + MOST_RIDERS)), most))

    def _is_free(self, msg_id: str) -> bool:
        return self._is_in_que(msg_id) and msg_id not in self.gathering

    def next_due(self, now: float) -> tuple[str | None, float | None]:
        """Return (message to claim now, None) or (None, when to look again); Unread: its
        exclusion key is not known yet."""
        if self.rate_until(now) > now:
            return None, self.next_look(now)
        return self.waiting.next_due(now, self.exclusion_key, self.busy_keys)

    def next_of_batches(self, now: float) -> tuple[str | None, float | None]:
        """As `next_due`, for a queue with batches: there no message excludes another."""
        return self.waiting.next_due(now, _no_key, ())

    def first_due(self) -> float | None:
        """Return the smallest due of all that wait; None when nothing waits."""
        now = self._spool.clock()
        dues = (self.waiting.first_due(now), self.gathering.oldest())
        return min((due for due in dues if due is not None), default=None)

    def next_look(self, now: float) -> float | None:
        """Return when a message may start; None: none waits but for another."""
        look = self.waiting.look_from(now)
        return None if look is None else max(look, self.rate_until(now))

    def rate_until(self, now: float) -> float:
        """Return when a message may start by the rate: now, or later."""
        return self._rate.next(now)

    def has_due(self, now: float) -> bool:
        """Whether a message, or a batch, could start now."""
        free = self.rate_until(now) <= now
        return (free and self.waiting.has_due(now)) or self.gathering.starts_by(now)

    def gather(self, msg_id: str) -> None:
        """Put a message that is due into its batch; Unread: which batch that is
        cannot be known yet."""
        params: JsonObject = {}
        entry, last = self._spool.entry(msg_id), False
        if self._config.batch.get("by") or entry.count:
            try:
                message, rule = self._spool.read(msg_id), self._config.retry
                params = message.params
                last = 0 < entry.count >= most_tries(rule, message.max_count) - 1
            except Unread:
                raise
            except (BadMessage, NoSuchMessage):
                pass  # the claim says why
        hurry = msg_id in self._ranks.hurried
        self._ranks.hurried.discard(msg_id)
        since = min(entry.ready_since, self._spool.clock())
        most = self.gathering.rule.at_most(entry.lost, last)
        self.gathering.add(msg_id, since, params, hurry, most)

    # ---- exclusion

    def exclusion_key(self, msg_id: str) -> str | None:
        """Return what no running message may share with this one. Unread: that is not
        known for now, and it must not run beside one that has the same."""
        return self._ranks.key(msg_id, self._spool.entry(msg_id))

    def started(self, key: str | None, msg_id: str, now: float) -> None:
        """Count a message that was claimed: its key, and its token of the rate."""
        self._rate.take(now)
        self.take_key(key, msg_id)

    def take_key(self, key: str | None, msg_id: str) -> None:
        """Take a place of an exclusion key for a message."""
        if key is not None:
            self.busy_keys.take(key, msg_id)

    def free_key(self, key: str | None, msg_id: str) -> None:
        """Free the place of a message, for another one that waits for it."""
        if key is not None:
            self.busy_keys.free(key, msg_id)
            if key not in self.busy_keys:
                self.waiting.release(key)

    # ---- coalesced messages

    @property
    def riding(self) -> int:
        """How many messages in que wait for the end of an equal one."""
        return sum(len(riders) for riders in self._riders.values())

    def riders_of(self, leader: str) -> list[str]:
        """Return the messages that end with `leader` if it succeeds."""
        return list(self._riders.get(leader, ()))

    def gather_riders(self, leader: str, key: str | None) -> None:
        """Make all other waiting messages that equal the leader ride with it."""
        if key is None:
            return
        riders = self._groups.others(key, leader, MOST_RIDERS)
        for rider in riders:
            self.remove(rider)
            entry = self._spool.entry(rider)
            entry.rider_of, entry.key = leader, key
        if riders:
            self._riders[leader] = dict.fromkeys(riders)

    def riders_for(self, leader: str) -> list[str]:
        """Return the messages that will ride with one in que when it is claimed."""
        key = self._spool.entry(leader).key
        return [] if key is None else self._groups.others(key, leader, MOST_RIDERS)

    def ride_again(self, leader: str, riders: Iterable[str]) -> None:
        """Make messages ride again that rode with the leader when the queue ended."""
        again = [rider for rider in riders if self._is_in_que(rider)]
        for rider in again:
            entry = self._spool.entry(rider)
            key = entry.key
            self.remove(rider)
            entry.rider_of, entry.key = leader, key
        if again:
            self._riders[leader] = dict.fromkeys(again)

    def _is_in_que(self, msg_id: str) -> bool:
        entry = self._spool.entry_of(msg_id)
        return entry is not None and entry.state is State.QUE and entry.may_run

    def forget_riders(self, leader: str) -> None:
        """Forget the riders of a message that has succeeded: they end with it."""
        self.waiting.forget_riders(leader)
        self._riders.pop(leader, None)

    def release_riders(self, leader: str) -> None:
        """Give riders back to que: their leader did not succeed."""
        for rider in self._riders.pop(leader, ()):
            entry = self._spool.entry_of(rider)
            if entry is not None and entry.state is State.QUE:
                entry.rider_of = None
                if entry.key is not None:
                    self._join(entry.key, rider, entry)
        self.waiting.part(leader)

    # ---- what the schedule asks

    def _group(self, msg_id: str, entry: Entry, message: Message | None = None) -> None:
        try:
            content = message or self._spool.read(msg_id)
        except (BadMessage, NoSuchMessage):
            return  # claim will move it to err
        numbers = self._config.coalesce_params
        entry.key = coalesce.group(content.params, numbers, content.by)
        if entry.key is not None:
            self._join(entry.key, msg_id, entry)

    def _join(self, group: str, msg_id: str, entry: Entry) -> None:
        """Put a message into its group. All have the highest priority of one of them,
        and so the first that is due runs with that."""
        before = self._groups.priority(group)
        self._groups.add(group, msg_id, entry.rank.priority)
        highest = self._groups.priority(group)
        if highest:
            self._raise(msg_id)
        if highest > before:
            for other in self._groups.others(group, msg_id, MOST_RIDERS):
                self._raise(other)

    def _raise(self, msg_id: str) -> None:
        entry = self._spool.entry(msg_id)
        rank = self._ranks.raised(entry)
        if rank is not None:
            self.waiting.add(Item(entry.due, entry.seq, msg_id), rank)

    def _leader_of(self, msg_id: str) -> str | None:
        return self._spool.entry(msg_id).rider_of

    def _dest_of(self, msg_id: str) -> str:
        try:
            return self._spool.read(msg_id).dest
        except (BadMessage, NoSuchMessage):
            return ""  # claim will move it to err


def _due(entry: Entry, now: float) -> float:
    due = entry.due
    return turn(due, entry.since, entry.attempt > 0, now) if due > now else due


def _rule(config: QueueConfig) -> tuple[object, ...]:
    """Return the settings by which messages are put into the schedule."""
    params = config.coalesce_params, config.limited_params, config.fair_params
    return *params, config.batch


def _no_key(msg_id: str) -> None:
    """Return that no message of a queue with batches excludes another."""
