"""One table: a row for each figure, a column for each peer, each beside RQ's."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

OURS = "RQ"


def rate(value: float) -> str:
    return f"{value:,.0f}/s"


def moment(value: float) -> str:
    return f"{value * 1e3:.2f} ms"


def size(value: float) -> str:
    return f"{value:,.0f} B"


def seconds(value: float) -> str:
    return f"{value:.2f} s"


ROWS: dict[str, Callable[[float], str]] = {
    "accept, 1 client": rate,
    "accept p50, 1 client": moment,
    "accept p99, 1 client": moment,
    "accept, 64 clients, burst": rate,
    "accept, 64 clients, sustained": rate,
    "accept p99, 64 clients": moment,
    "cycle, a process per message": rate,
    "start p50, a process per message": moment,
    "start p99, a process per message": moment,
    "cycle, workers that stay": rate,
    "memory of a queued message": size,
    "ready again after kill -9": seconds,
}


@dataclass
class Table:
    """What was measured, as it comes in; of several rounds the median is shown."""

    disk: str
    queued: int
    abouts: dict[str, str] = field(default_factory=dict)
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def begin(self, peer: str, about: str) -> None:
        self.abouts[peer] = about

    def put(self, peer: str, figure: str, value: float) -> None:
        self.values.setdefault((figure, peer), []).append(value)
        print(f"{peer}: {figure}: {ROWS[figure](value)}", flush=True)

    def missing(self, peer: str, why: str) -> None:
        self.absent[peer] = why
        print(f"{peer}: {why}", flush=True)

    def trouble(self, peer: str, what: str) -> None:
        self.troubles.append(f"{peer}: {what}")
        print(f"{peer}: FAILED: {what}", flush=True)

    def text(self, took: float) -> str:
        """Return it as a table of Markdown, with what one must know to read it."""
        names = list(self.abouts)
        lines = [line(["", *names]), line(["---"] * (len(names) + 1))]
        for figure in ROWS:
            lines.append(line([figure, *(self.cell(figure, one) for one in names)]))
        for name, why in self.absent.items():
            reason, _, command = why.partition(" -> ")
            said = f"not installed: {reason}; get it: `{command}`"
            lines.append(line([name, said, *[""] * (len(names) - 1)]))
        notes = [f"* {name}: {about}" for name, about in self.abouts.items()]
        notes += [f"* FAILED: {one}" for one in self.troubles]
        head = f"{machine()}; {self.disk}; {self.queued:,} queued; {took:.0f} s in all"
        return "\n".join(["", head, "", *lines, "", *notes])

    def value(self, figure: str, peer: str) -> float | None:
        """Return the median of the rounds."""
        taken = self.values.get((figure, peer))
        return statistics.median(taken) if taken else None

    def cell(self, figure: str, peer: str) -> str:
        value, ours = self.value(figure, peer), self.value(figure, OURS)
        if value is None:
            return "-"
        text = ROWS[figure](value)
        return text if peer == OURS or not ours else f"{text} ({value / ours:.2f} ×)"


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    found = os.uname()
    load = os.getloadavg()[0]
    python = platform.python_version()
    return f"{os.cpu_count()} cores, load {load:.1f}, Linux {found.release}, Python {python}"
