"""What the broker is to reach, beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A figure of the broker, the least or most that it may be, and that of a peer of
    which it is to be a part at least."""

    name: str
    least: float = 0.0
    most: float = 0.0
    peer: str = ""
    share: float = 0.0

    def show(self, found: dict[str, float]) -> None:
        if self.name not in found:
            return
        value, limit = found[self.name], self._limit(found)
        met = value <= limit if self.most else value >= limit
        word, scale, unit = ("≤", 1e3, " ms") if self.most else ("≥", 1.0, "/s")
        of = f" ({self.share:g} × {self.peer})" if self.peer in found else ""
        print(
            f"  {self.name:44}{value * scale:10,.2f}{unit}  goal {word} "
            f"{limit * scale:,.2f}{unit}{of}: {'met' if met else 'MISSED'}"
        )

    def _limit(self, found: dict[str, float]) -> float:
        return self.most or max(self.least, self.share * found.get(self.peer, 0.0))


GOALS = (
    Goal(name="ADDJOB, 1 client", peer="LPUSH, 1 client", share=0.9),
    Goal(name="ADDJOB, 50 clients", least=20_000, peer="LPUSH, 50 clients", share=0.5),
    Goal(name="ADDJOB GETJOB ACKJOB, 16 at once", least=7_500),
    Goal(name="RQ.PUSH RQ.POP RQ.ACK of 100", least=60_000),
    Goal(name="QGET QACK by 10 groups", least=20_000),
    Goal(name="ADDJOB, 50 clients: p99", most=0.015),
    Goal(name="broker: blocked", most=0.001),
)
