"""The health of a queue, for people: what is wrong with it, set where it is noticed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Health:
    """What is wrong now, each in a sentence; None or nothing: that part is well."""

    config: str | None = None  # why config.json is not in force
    checkpoint: str | None = None  # why there was none when it was due
    deposits: dict[str, str] = field(default_factory=dict)  # name in new/: why it stays
    deliveries: dict[str, str] = field(
        default_factory=dict
    )  # queue: why it gets nothing
