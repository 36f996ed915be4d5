"""How far a script says it is, from the words of its last report; pure."""

from __future__ import annotations

import re

_PERCENT = re.compile(r"(?<![\d./])(\d{1,3}(?:\.\d{1,4})?) ?%")
_OF = re.compile(r"(?<![\d./])(\d{1,12}) ?(?:of|/) ?(\d{1,12})(?![\d/])")


def part_done(said: str) -> float | None:
    """Return the part from 0 to 1 that a progress text names, None when it names none.

    >>> [part_done(t) for t in ("copied 40 %", "step 3 of 6", "7/0", "2026/11/21")]
    [0.4, 0.5, None, None]
    """
    if match := _PERCENT.search(said):
        part = float(match[1]) / 100
    elif match := _OF.search(said):
        whole = int(match[2])
        part = int(match[1]) / whole if whole else 2.0
    else:
        return None
    return part if 0 <= part <= 1 else None
