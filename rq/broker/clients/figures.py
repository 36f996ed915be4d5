"""What an operator sees of the commands of a broker: how many there were, how long they
took, which were slow (INFO, SLOWLOG, LATENCY), and each one as it comes (MONITOR).

Times are seconds; `now` is monotonic, `at` is the time of day.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from rq.access.roles import Role
from rq.broker.clients.connection import Connection
from rq.broker.dialects.call import quoted
from rq.config.broker import BrokerConfig
from rq.resp import Status

COMMAND = "command"  # the spikes of LATENCY: of a command, of a sync
SYNC = "aof-fsync-always"
_SPIKES = 160  # that are kept of each kind
_SECONDS = 16  # that a rate is the mean of
_MOST_WORDS = 32  # of a command as it is shown
_MOST_BYTES = 128  # of a word of it
HIDDEN = b"(hidden)"
_SECRET = (b"PASS", b"AUTH", b"KEY")  # in the names of settings


@dataclass(slots=True)
class Cost:
    """What one command has cost since the start."""

    calls: int = 0
    seconds: float = 0.0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class SlowCommand:
    """A command that took long; its words without secrets."""

    number: int
    at: int
    microseconds: int
    words: Sequence[bytes]
    address: str
    client: str


class Figures:
    """What the commands have cost, and the clients that watch them."""

    def __init__(self) -> None:
        self.monitors: dict[int, Connection] = {}  # clients that said MONITOR
        self.spikes: dict[str, deque[tuple[int, int]]] = {}  # when, milliseconds
        self.worst: dict[str, int] = {}
        self._slow: deque[SlowCommand] = deque()  # the newest first
        self._numbers = 0
        self.reset()

    def reset(self) -> None:
        """Count from nothing again."""
        self.costs: dict[bytes, Cost] = {}
        self.commands = 0
        self._each: deque[tuple[int, int]] = deque(maxlen=_SECONDS)  # second, commands
        self._second = 0
        self._in_second = 0

    def note(self, name: bytes, seconds: float, now: float, *, refused: bool) -> None:
        """Count a command."""
        cost = self.costs.get(name)
        if cost is None:
            cost = self.costs[name] = Cost()
        cost.calls += 1
        cost.seconds += seconds
        cost.refused += refused
        self.commands += 1
        if int(now) != self._second:
            self._each.append((self._second, self._in_second))
            self._second, self._in_second = int(now), 0
        self._in_second += 1

    def per_second(self, now: float) -> int:
        """Return how many commands came in a second of late."""
        since = int(now) - _SECONDS
        latest = [*self._each, (self._second, self._in_second)]
        number = sum(count for second, count in latest if since <= second < int(now))
        return round(number / _SECONDS)

    def show(self, connection: Connection, command: Sequence[bytes]) -> None:
        """Show a command to the clients that watch, as long as they may: a password may
        have been set since, or they may have logged in as another user."""
        words = " ".join(map(quoted, visible_words(command)))
        line = Status(f"{time.time():.6f} [0 {connection.address}] {words}")
        for watcher in list(self.monitors.values()):
            if watcher.may_all(Role.ADMIN):
                watcher.show(line)
            else:
                del self.monitors[watcher.number]

    # ---- the slow ones

    def note_slow(
        self,
        connection: Connection,
        command: Sequence[bytes],
        took: float,
        settings: BrokerConfig,
    ) -> None:
        """Keep a command that took `took` seconds, if that is slow by the settings."""
        if 0 <= settings.slowlog_slower <= took * 1e6:
            words, at = visible_words(command), int(time.time())
            who = connection.address, connection.name
            slow = SlowCommand(self._numbers, at, int(took * 1e6), words, *who)
            self._slow.appendleft(slow)
            self._numbers += 1
            while len(self._slow) > settings.slowlog_length:
                self._slow.pop()
        if settings.latency_threshold:
            self.note_time(COMMAND, took, settings.latency_threshold)

    def slow(self, count: int) -> list[SlowCommand]:
        """Return the newest slow commands."""
        return list(islice(self._slow, count))

    @property
    def slow_count(self) -> int:
        """How many slow commands are kept."""
        return len(self._slow)

    def forget_slow(self) -> None:
        """Keep none of them."""
        self._slow.clear()

    # ---- spikes

    def note_time(self, kind: str, took: float, threshold: int) -> None:
        """Keep a spike, `took` seconds in which all clients had to wait, if that is not
        below `threshold` milliseconds; 0: keep none."""
        if threshold and took * 1000 >= threshold:
            self._add_spike(kind, took, int(time.time()))

    def _add_spike(self, kind: str, seconds: float, at: int) -> None:
        """Keep a spike; of one second the worst counts."""
        ms = int(seconds * 1000)
        spikes = self.spikes.setdefault(kind, deque(maxlen=_SPIKES))
        if spikes and spikes[-1][0] == at:
            ms = max(ms, spikes.pop()[1])
        spikes.append((at, ms))
        self.worst[kind] = max(ms, self.worst.get(kind, 0))

    def forget_spikes(self, kinds: Sequence[str]) -> int:
        """Forget the spikes of some kinds; return of how many there were any."""
        gone = [kind for kind in kinds if self.spikes.pop(kind, None) is not None]
        for kind in gone:
            self.worst.pop(kind, None)
        return len(gone)


# ---- commands as they are shown: cut, and without passwords


def visible_words(command: Sequence[bytes]) -> list[bytes]:
    """Return the words of a command, as many and as long as one looks at.

    >>> visible_words([b"config", b"Set", b"RequirePass", b"secret"])
    [b'config', b'Set', b'RequirePass', b'(hidden)']
    >>> visible_words([b"HELLO", b"3", b"auth", b"ann", b"secret", b"SETNAME", b"x"])
    [b'HELLO', b'3', b'auth', b'(hidden)', b'(hidden)', b'(hidden)', b'(hidden)']
    """
    words = [_cut(word) for word in command[:_MOST_WORDS]]
    if len(command) > _MOST_WORDS:
        more = len(command) - _MOST_WORDS + 1
        words[-1] = b"... (%d more arguments)" % more
    from_here = _secrets_from(words)
    return words[:from_here] + [HIDDEN] * len(words[from_here:])


def _secrets_from(words: Sequence[bytes]) -> int:
    """Return from which word on nothing may be shown."""
    upper = [word.upper() for word in words]
    match upper:
        case [b"AUTH", *_]:
            return 1
        case [b"HELLO", *options] if b"AUTH" in options:
            return upper.index(b"AUTH") + 1
        case [b"CONFIG", b"SET", *pairs]:
            secret = (
                at
                for at, name in enumerate(pairs, 3)
                if any(s in name for s in _SECRET)
            )
            return next(secret, len(words))
    return len(words)


def _cut(word: bytes) -> bytes:
    if len(word) <= _MOST_BYTES:
        return word
    return word[:_MOST_BYTES] + b"... (%d more bytes)" % (len(word) - _MOST_BYTES)
