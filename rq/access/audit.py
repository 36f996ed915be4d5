"""The audit logs: who did what, from where, and how it was answered.

`log/audit.log` has what was done and who signed in, `log/refused.log` what was refused:
strangers who make noise rotate the second away, never the first. No line holds a header,
a query or a field of a form, so none holds a secret.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from rq import logs
from rq.layout import Root

AUDIT = "audit.log"
REFUSED = "refused.log"
OTHERS = "other addresses"
PERIOD = 60.0  # seconds in which refusals of an address are counted together
EACH = 10  # refusals of an address in a period that get a line of their own
_ADDRESSES = 100  # in a period; those beyond are counted together
_LONGEST = 200  # characters of a value

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What somebody did, or was refused; `what` is a method and a path, or a verb."""

    who: str
    address: str
    what: str
    answer: str
    forwarded_for: str = ""  # what a proxy says of the address; anybody may say it


class Audit:
    """Writes both logs of a root; any number of processes may."""

    def __init__(self, root: Root) -> None:
        self._done = root.log / AUDIT
        self._refused = root.log / REFUSED
        self._groups = Groups()

    def note(self, deed: Deed, now: float) -> None:
        """Write what was done."""
        _append(self._done, _line(deed, now))

    def refuse(self, deed: Deed, now: float) -> bool:
        """Write what was refused, unless the address was refused too often just now.

        Return whether it was written; what was not is counted in a later `flush`.
        """
        self.flush(now)
        written = self._groups.count(network(deed.address), now)
        if written:
            _append(self._refused, _line(deed, now))
        return written

    def flush(self, now: float) -> None:
        """Write how many refusals of periods that are over got no line."""
        for address, number in self._groups.over(now):
            values = {"address": address, "what": f"and {number} more refusals"}
            _append(self._refused, f"time={_moment(now)} {logs.fields(**values)}")


class Groups:
    """Counts what each address, or user, does in periods of a minute, in bounded memory;
    `each` of these in a period are let through."""

    def __init__(self, each: int = EACH) -> None:
        self._each = each
        # In the order in which the periods began.
        self._begun: dict[str, tuple[float, int]] = {}

    def count(self, address: str, now: float) -> bool:
        """Count a refusal; return whether it gets a line of its own."""
        if address not in self._begun and len(self._begun) >= _ADDRESSES:
            address = OTHERS
        begun, number = self._begun.get(address, (now, 0))
        self._begun[address] = (begun, number + 1)
        return number < self._each

    def over(self, now: float) -> list[tuple[str, int]]:
        """Forget the periods that are over; return what got no line in each."""
        ended = []
        for address, (begun, number) in list(self._begun.items()):
            if begun <= now < begun + PERIOD:  # a clock that was set back ends it too
                break
            del self._begun[address]
            if number > self._each:
                ended.append((address, number - self._each))
        return ended


def network(address: str) -> str:
    """Return what an address is counted as: a customer has 2**64 addresses of IPv6.

    >>> network("192.0.2.7"), network("::ffff:192.0.2.7"), network("2001:db8::1:2")
    ('192.0.2.7', '192.0.2.7', '2001:db8::/64')
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:_LONGEST]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def _line(deed: Deed, now: float) -> str:
    values = {
        "who": deed.who or "-",
        "address": deed.address or "-",
        "what": deed.what,
        "answer": deed.answer,
    }
    if deed.forwarded_for:
        values["forwarded_for"] = deed.forwarded_for
    cut = {name: _cut(value) for name, value in values.items()}
    return f"time={_moment(now)} {logs.fields(**cut)}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _moment(now: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    return f"{whole}.{int(now * 1000) % 1000:03d}Z"


def _append(path: Path, line: str) -> None:
    """Append a line. What was done has been done, so a full disk does not undo it."""
    try:
        logs.append(path, line)
    except OSError as error:
        log.error("an audit line could not be written: %s", error)
