"""What the settings may be that say how many messages start: `concurrency`, `rate`."""

from __future__ import annotations

from rq.config.values import json_object, param_numbers, whole

_CONCURRENCY_KEYS = ("params", "max")
_MOST_AT_ONCE = 100_000  # as many leases as there may be


def concurrency(value: object) -> dict[str, object]:
    """Return the setting `concurrency` whole; nothing for a queue without."""
    given = json_object(value)
    for name in given:
        if name not in _CONCURRENCY_KEYS:
            keys = ", ".join(_CONCURRENCY_KEYS)
            raise ValueError(f"{name!r:.60} is not one of {keys}")
    if not given:
        return {}
    params = param_numbers(given.get("params", []))
    if not params:
        raise ValueError("params: it names no param by which messages are equal")
    if "max" not in given:
        raise ValueError("it lacks max, how many equal messages run at the same time")
    try:
        return {"params": params, "max": whole(1, _MOST_AT_ONCE)(given["max"])}
    except ValueError as error:
        raise ValueError(f"max: {error}") from None


_RATE_KEYS = ("number", "per", "burst")
_PER = ("second", "minute", "hour")


def rate(value: object) -> dict[str, object]:
    """Return the setting `rate` whole; nothing for a queue without."""
    given = json_object(value)
    for name in given:
        if name not in _RATE_KEYS:
            raise ValueError(f"{name!r:.60} is not one of {', '.join(_RATE_KEYS)}")
    if not given:
        return {}
    if given.get("per") not in _PER:
        raise ValueError(
            f"per: {given.get('per')!r:.60} is not one of {', '.join(_PER)}"
        )
    checked: dict[str, object] = {"per": given["per"]}
    for name, number in (
        ("number", given.get("number")),
        ("burst", given.get("burst")),
    ):
        if name == "burst" and number is None:
            number = checked["number"]
        try:
            checked[name] = whole(1, 1_000_000)(number)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return checked
