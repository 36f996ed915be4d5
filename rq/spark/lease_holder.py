"""What a stream holds of its queue: leased, renewed as long as the query lives, given up
when an operator cancels a message, finished when Spark has committed."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson

from rq.config import files
from rq.errors import BadInput, Busy, RQError
from rq.proc import locks
from rq.replies import Grant
from rq.spark import lease_options
from rq.spark.lease_options import Options
from rq.spark.lease_queue import CANCELLED, LeaseQueue
from rq.work.holding import Term, now

_LOOK = 5.0  # seconds between questions for what was cancelled
_UNKNOWN = "the checkpoint that knew it was removed"


# ---- what is leased and not finished yet
#
# A claim is what one batch of the query reads: a file, durable before its leases are
# confirmed, and so before Spark hears of it; it goes when the batch is committed and
# the leases are finished. It holds tokens, so no other user may read it.


_FILE = re.compile(r"claim-(\d{1,18})\.json")
_STREAM = "stream"
_PATIENCE = 30.0  # seconds for the process of a query that was just killed
_TRY = 0.1
_COUNTED = (
    1.0  # seconds for which a count of what waits is good: an idle query asks often
)


@dataclass(frozen=True, slots=True)
class Claim:
    """The leases that one batch reads."""

    number: int
    grants: Sequence[Grant]

    @property
    def tokens(self) -> list[str]:
        return [grant["token"] for grant in self.grants]


class Claims:
    """The directory of one stream, locked."""

    def __init__(self, place: Path) -> None:
        """BadInput when it cannot be used, Busy when another query uses it."""
        self._place = place
        try:
            files.make_dir(place)
            place.chmod(0o700)
            self._lock = _locked(place / "lock")
        except OSError as error:
            raise BadInput(f"claims: {place}: {error.strerror or error}") from None
        self.stream = self._name()

    def close(self) -> None:
        os.close(self._lock)

    def _name(self) -> str:
        """Return the name of this stream: its requests for leases are known by it."""
        path = self._place / _STREAM
        if not path.exists():
            files.write_secret(path, uuid.uuid4().hex)
        return path.read_text()

    def numbers(self) -> list[int]:
        """Return the numbers of all claims, in order."""
        matches = map(_FILE.fullmatch, os.listdir(self._place))
        return sorted(int(match[1]) for match in matches if match)

    def read(self, number: int) -> Claim | None:
        """Return a claim; None if there is none of this number."""
        try:
            data = self._file(number).read_bytes()
        except FileNotFoundError:
            return None
        return Claim(number, cast(list[Grant], orjson.loads(data)))

    def write(self, claim: Claim) -> None:
        """Keep a claim, durably; OSError."""
        files.write_secret_state(self._file(claim.number), list(claim.grants))

    def remove(self, number: int) -> None:
        """Forget a claim whose leases have ended."""
        files.remove_link(self._file(number))

    def _file(self, number: int) -> Path:
        return self._place / f"claim-{number}.json"


def _locked(path: Path) -> int:
    until = time.monotonic() + _PATIENCE
    while (fd := locks.lock(path)) is None:
        if time.monotonic() > until:
            raise Busy(
                f"another query reads with the claims in {path.parent}: each needs a "
                "directory of its own"
            )
        time.sleep(_TRY)
    return fd


@dataclass(frozen=True, slots=True)
class Taken:
    """How many messages a claim has, and how many of them are new."""

    messages: int
    new: int


class Holder:
    """Holds the leases of a stream."""

    def __init__(self, options: Options) -> None:
        self._options = options
        ways = lease_options.way(options), lease_options.way(options)
        self._claims = Claims(Path(options.claims))
        label = options.label or f"spark-{self._claims.stream[:8]}"
        self._look = min(_LOOK, options.seconds / 3)
        self._leased = 0  # of the last claim, not finished
        self._counted: tuple[float, int] | None = None  # what waited, and when
        self.queue = LeaseQueue(ways[0], label, options.timeout)
        self._minded = LeaseQueue(ways[1], label, self._look)
        self._stopped = threading.Event()
        self._minding = threading.Thread(target=self._mind, daemon=True)
        self._minding.start()

    def close(self) -> None:
        """Leave what is not committed to the next start of the query."""
        self._stopped.set()
        self._minding.join()
        self._minded.close()
        self.queue.close()
        self._claims.close()

    # ---- what Spark asks for

    def settle(self, committed: int) -> None:
        """Finish all claims that Spark has committed, and give back those that it does
        not know, of a checkpoint that was removed."""
        for number in self._claims.numbers():
            if number == committed + 1:
                continue
            claim = self._claims.read(number)
            assert claim is not None, "only this process removes claims"
            if number <= committed:
                _tell("committed", self.queue.finish(claim.tokens).values())
            else:
                self.queue.release(claim.tokens, _UNKNOWN)
            self._claims.remove(number)

    def claim(self, number: int, rows: int) -> Taken:
        """Have a claim of this number: that of before, or else of what is due now."""
        if held := self.held(number):
            self._leased = len(held)
            return Taken(len(held), 0)
        grants = self._lease(number, rows)
        if grants:
            self._claims.write(Claim(number, grants))
        self._leased = len(self.held(number))
        return Taken(self._leased, len(grants))

    def _lease(self, number: int, rows: int) -> list[Grant]:
        grants: list[Grant] = []
        while len(grants) < rows:
            request = f"{self._claims.stream}/{number}/{len(grants)}"
            more = self.queue.lease(rows - len(grants), self._options.seconds, request)
            if not more:
                break
            grants += more
        return grants

    def held(self, number: int) -> Sequence[Grant]:
        """Return the messages of a claim whose leases still hold: others may work on the
        rest by now, so it is in no batch any more, and in a later one again; and what was
        cancelled is in none."""
        claim = self._claims.read(number)
        if claim is None:
            return []
        heard = self.queue.start(claim.tokens)
        self.queue.release(list(heard.cancels), CANCELLED)
        gone = {**heard.over, **heard.cancels}
        if gone:
            _tell("it is read again later", heard.over.values())
            _tell("it is not read", heard.cancels.values())
            left = [grant for grant in claim.grants if grant["token"] not in gone]
            claim = Claim(number, left)
            self._claims.write(claim)
        return claim.grants

    def behind(self) -> dict[str, int]:
        """Return how many messages of the last claim are not finished, and how many wait
        behind them."""
        if self._counted is None or now() - self._counted[0] > _COUNTED:
            # A figure for people: without an answer it stays as it was.
            with contextlib.suppress(RQError):
                self._counted = now(), self.queue.waiting()
        waiting = {} if self._counted is None else {"waiting": self._counted[1]}
        return {"leased": self._leased, **waiting}

    # ---- meanwhile

    def _mind(self) -> None:
        """Renew all leases three times in their length, and give up what was cancelled.
        What is over is told when Spark asks for it."""
        fails, term = False, Term(now(), self._options.seconds)
        while not self._stopped.wait(self._look):
            try:
                self._give_up(self._minded.cancels())
                if now() + self._look >= term.renew_at:
                    sent = now()
                    self._renew()
                    term = Term(sent, self._options.seconds)
                fails = False
            except RQError as error:
                if not fails:  # else it was told
                    _tell("leases are not renewed", [str(error)])
                fails = True

    def _renew(self) -> None:
        for grants in self._all():
            heard = self._minded.renew([grant["token"] for grant in grants])
            self._minded.release(list(heard.cancels), CANCELLED)

    def _give_up(self, cancelled: Mapping[str, str]) -> None:
        """Give up messages that were cancelled, whatever batch reads them already."""
        for grants in self._all() if cancelled else ():
            tokens = [held["token"] for held in grants if held["msg_id"] in cancelled]
            self._minded.release(tokens, CANCELLED)

    def _all(self) -> Iterable[Sequence[Grant]]:
        """Give the messages of each claim."""
        for number in self._claims.numbers():
            claim = self._claims.read(number)
            if claim is not None:
                yield claim.grants


def _tell(what: str, texts: Iterable[str]) -> None:
    for text in texts:
        print(f"rq: {what}: {text}", file=sys.stderr)  # noqa: T201
