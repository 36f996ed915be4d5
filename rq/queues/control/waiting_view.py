"""The reason why a message in que has not started, and what a person has to do before it
can."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict

from rq.config.admin import Admin, needed
from rq.errors import BadInput, NoSuchMessage, Unread
from rq.message import causes, waits
from rq.message.after import queue_of
from rq.message.fields import JsonObject
from rq.message.waits import Reason, Why
from rq.queues.asking import decisions
from rq.queues.maintenance import stall
from rq.queues.owner.owner import Owner
from rq.replies import elsewhere
from rq.spool.entry import Entry
from rq.words.wording import duration, moment

_NAMED = 3


def why_waiting(owner: Owner, msg_id: str) -> Why:
    """Return why a message in que has not started."""
    entry = owner.spool.entry(msg_id)
    if entry.held:
        return _why_held(owner, msg_id)
    if entry.after is not None:
        return _why_after(owner, msg_id)
    if entry.rider_of is not None:
        text = (
            f"It is equal to {entry.rider_of}, which runs for both (coalesce_params)."
        )
        return Why(reason=Reason.RIDES, text=text, by=entry.rider_of)
    return _why_not_yet(owner, msg_id, entry)


def _why_not_yet(owner: Owner, msg_id: str, entry: Entry) -> Why:
    now = owner.spool.clock()
    if (stopped := _why_none(owner)) is not None:
        return waits.and_due(stopped, entry.due, now)
    if entry.due > now:
        return waits.due(entry.due, now, _who_told(owner, msg_id, entry))
    key = None
    with contextlib.suppress(Unread):
        key = owner.backlog.exclusion_key(msg_id)
    if key is not None and key in owner.backlog.busy_keys:
        return _why_key(owner, key)
    held = owner.backlog.waiting.held_for(msg_id)
    if held is not None:
        name, until = held
        away = max(0.0, until - now)
        text = f"It waits for {name}, which is tried again in {duration(away)}."
        return Why(reason=Reason.OUTSIDE, text=text, until=until, by=name)
    return _why_rate(owner) or _why_next(owner, msg_id)


def _who_told(owner: Owner, msg_id: str, entry: Entry) -> str:
    """Return that an attempt has told a message to wait, as the end of a sentence."""
    result = owner.spool.status(msg_id) if entry.attempt else {}
    cause = causes.of(result.get("cause"))
    if cause is None or not cause.row.names_delay:
        return ""
    return f": attempt {entry.attempt} has told it to wait"


def _why_key(owner: Owner, key: str) -> Why:
    """Return which messages run with the key of another."""
    running = owner.backlog.busy_keys.who(key)
    text = _running_with_key(owner, running)
    return Why(reason=Reason.KEY, text=text, by=running[0])


def _running_with_key(owner: Owner, running: Sequence[str]) -> str:
    if not owner.config.concurrency:
        return f"{running[0]} is running, with equal blocking_params."
    ids = ", ".join(running[:_NAMED])
    more = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
    are = "is" if len(running) == 1 else "are"
    return f"{ids}{more} {are} running, with an equal key (concurrency)."


def _why_held(owner: Owner, msg_id: str) -> Why:
    """Return who holds a message, since when, and why."""
    held: JsonObject = {}
    with contextlib.suppress(BadInput, NoSuchMessage, Unread):
        held = owner.spool.read(msg_id).held or {}
    return waits.held(held)


def _why_after(owner: Owner, msg_id: str) -> Why:
    """Return for which messages another one waits, and which queue does not say how they
    stand."""
    waits_for = owner.backlog.predecessors
    text = f"It waits for {decisions.keeping(owner, msg_id)} (after)."
    first = waits_for.still_open(msg_id, 1)
    since = waits_for.rounds.silent_since(queue_of(first[0][0])) if first else None
    if since is not None:
        queue = queue_of(first[0][0])
        text = f"{text} Queue {queue} does not answer since {moment(since)} UTC."
    return Why(reason=Reason.AFTER, text=text, by=first[0][0] if first else None)


def _why_rate(owner: Owner) -> Why | None:
    """Return which rate keeps a message; None: none does."""
    rate, now = owner.config.rate, owner.spool.clock()
    until = owner.backlog.rate_until(now)
    if until <= now:
        return None
    messages = "message" if rate["number"] == 1 else "messages"
    text = (
        f"The queue starts {rate['number']:,} {messages} per {rate['per']} (rate); the "
        f"next one in {duration(until - now)}."
    )
    return Why(reason=Reason.RATE, text=text, until=until)


def _only_elsewhere(owner: Owner) -> bool:
    """Whether workers elsewhere may take messages, and nothing can start here."""
    here = owner.config.num_workers > 0 and owner.script.error is None
    return owner.config.pull is not None and not here


def _why_not_leased(owner: Owner) -> str:
    """Return in a sentence why no worker elsewhere has taken a message that is due."""
    most = 0 if owner.config.pull is None else owner.config.pull["max"]
    if len(owner.leases) >= most:
        return f"All {most:,} leases are out (pull.max)."
    if owner.remote_workers.are_there():
        return "The next worker elsewhere that is free takes it, in its turn."
    view = owner.remote_workers.facts(most)
    said = elsewhere.none_asks(view, time.time())
    return f"{said[0].upper()}{said[1:]}."


def _why_none(owner: Owner) -> Why | None:
    """Return why no message of the queue starts; None: they may."""
    if owner.admission.restored:
        text = "Its queue waits for a decision, which `rq restore` tells."
        return Why(reason=Reason.RESTORED, text=text)
    if (pause := owner.admission.pause) is not None:
        return waits.paused(**asdict(pause))
    if owner.admission.admin is not Admin.UP:
        text = f"The queue is {owner.admission.admin}."
        return Why(reason=Reason.DOWN, text=text)
    if owner.script.error is not None and owner.config.pull is None:
        text = f"The script cannot be started: {owner.script.error}."
        return Why(reason=Reason.SCRIPT, text=text)
    failed = owner.admission.disk_failed or owner.spool.journal_failed
    if failed:
        return Why(reason=Reason.DISK, text=f"The disk does not take writes: {failed}.")
    return None


def what_it_needs(owner: Owner, msg_id: str) -> str:
    """Return what a person has to do before a message can start; "": nothing."""
    if not owner.spool.entry(msg_id).may_run:
        return _how_to_release(owner.spool.entry(msg_id), msg_id)
    if owner.admission.restored:
        return (
            f"`rq restore ls {owner.name}` shows what would run; `rq restore accept "
            f"{owner.name}` lets it go on (with `--copy`: as a copy)."
        )
    if owner.admission.admin is not Admin.UP:
        return needed(owner.admission.admin, owner.name) + _or_now(owner, msg_id)
    if owner.config.pull is not None and _only_elsewhere(owner):
        away = not owner.remote_workers.are_there()
        start = elsewhere.command(owner.url, owner.config.pull)
        return f"Start one: `{start}`." if away else ""
    if owner.script.error is not None:
        return (
            "Mend the script (path, x bit, first line); the message then starts by "
            f"itself within seconds. log/queue-{owner.name}.log may say more."
        )
    if owner.config.num_workers == 0:
        return "Give the queue slots: `num_workers` in its config.json."
    if stall.lacks_worker(owner) and stall.slow_worker(owner) is not None:
        return (
            "See that the script writes `ready` to descriptor 3; "
            f"log/queue-{owner.name}.log holds what it prints."
        )
    return ""


def _how_to_release(entry: Entry, msg_id: str) -> str:
    if entry.held:
        return f"`rq release {msg_id}` lets it go on."
    return (
        "Nothing, if these end as they should; `rq retry` those that have failed. "
        f"`rq release {msg_id} --after` lets it run without them."
    )


def _or_now(owner: Owner, msg_id: str) -> str:
    """Return that a message is not due either, after what is said of its queue."""
    if owner.spool.entry(msg_id).due <= owner.spool.clock():
        return ""
    return f" Then it waits until it is due, or for `rq run {msg_id}`."


def _why_next(owner: Owner, msg_id: str) -> Why:
    if _only_elsewhere(owner):
        return Why(reason=Reason.LEASE, text=_why_not_leased(owner))
    if owner.config.num_workers == 0:
        return Why(reason=Reason.SLOT, text="num_workers is 0, so nothing runs.")
    return _why_free(owner, msg_id)


def _why_free(owner: Owner, msg_id: str) -> Why:
    if owner.slots_free <= 0:
        number = owner.config.num_workers
        which = "The only slot is" if number == 1 else f"All {number} slots are"
        pulls = owner.config.pull is not None
        more = f" {_why_not_leased(owner)}" if pulls else ""
        text = f"{which} taken (num_workers).{more}"
        first = next((attempt.msg_id for attempt in owner.attempts), None)
        return Why(reason=Reason.SLOT, text=text, by=first)
    if msg_id in owner.backlog.gathering:
        return _why_gathering(owner, msg_id)
    if owner.script.lack is not None:
        text = f"No process could be started just now: {owner.script.lack}."
        return Why(reason=Reason.START, text=text)
    if stall.lacks_worker(owner):
        return Why(reason=Reason.START, text=stall.why_no_worker(owner))
    return Why(reason=Reason.NEXT, text="It is the next to start.")


def _why_gathering(owner: Owner, msg_id: str) -> Why:
    there, quota, starts = owner.backlog.gathering.about(msg_id)
    away = starts - owner.spool.clock()
    if there >= quota or away <= 0:
        return Why(reason=Reason.NEXT, text="Its batch is the next to start.")
    text = (
        f"Its batch starts when {quota} messages are there (now {there}), or in "
        f"{duration(away)}."
    )
    return Why(reason=Reason.BATCH, text=text, until=starts)
