"""Who works on the messages of a queue elsewhere, in words for people."""

from __future__ import annotations

from collections.abc import Mapping

from rq.replies import Elsewhere
from rq.words.wording import duration


def at_work(view: Elsewhere, now: float) -> str:
    """Return how many messages are worked on elsewhere, and by whom.

    >>> view = {"leases": 3, "max": 9, "workers": 2, "last_heard": 56.0, "since": 0.0}
    >>> at_work(view, 60.0)
    '3 messages at work elsewhere, 2 workers there, the last heard of 4.0 s ago'
    >>> at_work({**view, "leases": 0, "workers": 0}, 2456.0)
    'no worker elsewhere has asked for messages for 40 min'
    """
    if not view["workers"]:
        return none_asks(view, now)
    messages = _many(view["leases"], "message")
    return f"{messages} at work elsewhere, {_there(view, now)}"


def _there(view: Elsewhere, now: float) -> str:
    """Return how many workers there are, and when one was heard of last.

    >>> view = {"leases": 1, "max": 9, "workers": 1, "last_heard": None, "since": 0.0}
    >>> _there(view, 60.0)
    '1 worker there, not heard of since the queue started 1 min ago'
    """
    workers, heard = _many(view["workers"], "worker"), view["last_heard"]
    if heard is None:
        return f"{workers} there, not heard of since {_start(view, now)}"
    which = "the last " if view["workers"] > 1 else ""
    return f"{workers} there, {which}heard of {_age(heard, now)} ago"


def none_asks(view: Elsewhere, now: float) -> str:
    """Return for how long no worker has asked for messages.

    >>> view = {"leases": 0, "max": 9, "workers": 0, "last_heard": None, "since": 0.0}
    >>> none_asks(view, 180.0)
    'no worker elsewhere has asked for messages since the queue started 3 min ago'
    """
    heard = view["last_heard"]
    how_long = (
        f"since {_start(view, now)}" if heard is None else f"for {_age(heard, now)}"
    )
    return f"no worker elsewhere has asked for messages {how_long}"


def command(url: str, pull: Mapping[str, object]) -> str:
    """Return what starts a worker of the queue at an address.

    >>> command("http://h:3333/q/x", {"share_script": False})
    'rq work http://h:3333/q/x --script DIR'
    """
    return f"rq work {url}" + ("" if pull["share_script"] else " --script DIR")


def terms(pull: Mapping[str, object]) -> str:
    """Return the setting `pull` of a queue, in sentences.

    >>> terms({"max": 1000, "seconds": 60, "share_script": True, "fetch": True})[:48]
    'A lease lasts 1 min unless its worker renews it;'
    """
    lasts = duration(float(str(pull["seconds"])))
    most = int(str(pull["max"]))
    script = (
        "Workers fetch the script from here."
        if pull["share_script"]
        else "Each worker brings a script of its own."
    )
    return (
        f"A lease lasts {lasts} unless its worker renews it; at most {most:,} are out at a "
        f"time. {script}" + ("" if pull["fetch"] else " Attachments stay here.")
    )


def _start(view: Elsewhere, now: float) -> str:
    return f"the queue started {_age(view['since'], now)} ago"


def _age(moment: float, now: float) -> str:
    return duration(max(0.0, now - moment))


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
