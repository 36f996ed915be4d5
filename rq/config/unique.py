"""What the setting `unique` may be."""

from __future__ import annotations

from collections.abc import Callable

DAY = 86400
LONGEST = 30 * DAY  # seconds of a window
_SCOPES = ("queued", "running", "both", "window")
_CONFLICTS = ("join", "replace", "reject")
_NAMES = ("params", "scope", "seconds", "conflict")


def unique(
    value: object,
    params: Callable[[object], tuple[int, ...]],
    seconds: Callable[[object], float],
) -> dict[str, object]:
    """Return the setting whole; nothing for a queue without. ValueError says what is
    wrong with it. `params` and `seconds` check these of its fields."""
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    for name in value:
        if name not in _NAMES:
            raise ValueError(f"{name!r:.60} is not one of {', '.join(_NAMES)}")
    if not value:
        return {}
    given = {
        "params": list(params(value.get("params", []))),
        "scope": _one_of("scope", value.get("scope", "queued"), _SCOPES),
        "conflict": _one_of("conflict", value.get("conflict", "join"), _CONFLICTS),
        "seconds": seconds(value.get("seconds", 0)),
    }
    _check_together(given)
    return given


def _one_of(name: str, value: object, words: tuple[str, ...]) -> str:
    if value in words:
        return str(value)
    raise ValueError(f"{name}: {value!r:.60} is not one of {', '.join(words)}")


def _check_together(given: dict[str, object]) -> None:
    scope = given["scope"]
    if (scope == "window") != bool(given["seconds"]):
        raise ValueError("seconds and the scope window go together: say both or none")
    if given["conflict"] == "replace" and scope not in ("queued", "both"):
        raise ValueError(
            "replace takes the place of what waits: its scope is queued or both, not "
            f"{scope}"
        )
