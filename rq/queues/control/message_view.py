"""The view of one message, as its owner shows it; nothing here changes anything."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import cast

from rq import names
from rq.errors import BadMessage
from rq.layout import folder
from rq.message import limits, next_attempt, standings, waits
from rq.message.fields import JsonObject
from rq.message.message import Message
from rq.message.stories import story
from rq.message.table import NOT_SHOWN
from rq.proc import processes
from rq.queues.asking.standing import place_of
from rq.queues.attempts.attempt import Attempt, Batch, starts_of_ended
from rq.queues.attempts.lease import Lease
from rq.queues.control import waiting_view
from rq.queues.maintenance import retention
from rq.queues.owner.owner import Owner
from rq.replies import (
    AttachmentView,
    AttemptsView,
    BatchView,
    EndView,
    MessageView,
    NextAttempt,
    Result,
    Standing,
    StoryView,
)
from rq.spool import attempts_kept
from rq.words.states import FINAL, LIVE, State, public
from rq.words.wording import duration

LEASED = "leased"  # the phase of an attempt elsewhere
# ---- one message


def version(owner: Owner, msg_id: str) -> str:
    """Return what tells whether a message has changed: its state and its starts. Only a
    new `due` of one that waits is not told."""
    state, entry = owner.spool.state_of(msg_id), owner.spool.entry_of(msg_id)
    if entry is not None:
        return f"{state}-{entry.attempt}"
    status = owner.spool.status(msg_id)
    return f"{state}-{starts_of_ended(read(owner, msg_id), status)}"


def status(owner: Owner, msg_id: str, result: Result | None = None) -> Standing:
    """Return path, state and status of a message; `result`: what its file `status` says,
    for who has read it."""
    state = owner.spool.state_of(msg_id)
    text = _text(owner, msg_id, state, result)
    word = public(state)
    return {
        "path": _path(owner, msg_id, state),
        "status": f"{word} - {text}" if text else word,
        "state": word,
    }


def end(owner: Owner, msg_id: str, *, running: bool = False) -> EndView:
    """Return what became of a message; `running`: of one that runs the text, too."""
    state = owner.spool.find(msg_id) or State.GONE
    result = owner.spool.status(msg_id) if state in FINAL else {}
    says = running and state is State.RUN
    return {
        "state": public(state),
        "acknowledged": state is State.DISMISSED,
        "cause": result.get("cause", ""),
        "text": _text(owner, msg_id, state, None)
        if says
        else result.get("job_status", ""),
        "ended": result.get("finished"),
    }


def standing(owner: Owner, msg_id: str, *, deep: bool, follow: bool = False) -> str:
    """Return the state of a message; of one in que `held` if a person holds it, `after` if
    it waits for others; `not_run` of one that these have decided against, `cancelled` of
    one that a person has ended. `deep`: also of one in done, whose file is read for it.
    `follow`: of one that was moved or edited `goes_on QUEUE/ID`."""
    state = owner.spool.find(msg_id) or State.GONE
    if follow and (place := place_of(owner, msg_id, state)):
        return place
    if state is State.QUE:
        entry = owner.spool.entry(msg_id)
        return "held" if entry.held else "after" if entry.after else public(state)
    if state is State.DISMISSED or (deep and state is State.DONE):
        return standings.state_word(state, owner.spool.status(msg_id))
    return public(state)


def _path(owner: Owner, msg_id: str, state: State) -> str:
    place = owner.spool.place(msg_id) or folder(state, msg_id)
    return f"queue/{owner.name}/{place}"


def _text(owner: Owner, msg_id: str, state: State, result: Result | None) -> str:
    attempt, lease = owner.attempts.of(msg_id), owner.leases.of(msg_id)
    if attempt is not None or lease is not None:
        return attempt.text if attempt else lease.text if lease else ""
    if state is State.PREP:
        return ""
    said = owner.spool.status(msg_id) if result is None else result
    return said.get("job_status", "")


def message(owner: Owner, msg_id: str) -> MessageView:
    """Return all that is known of a message."""
    content = read(owner, msg_id)
    state = owner.spool.state_of(msg_id)
    attempt = owner.attempts.of(msg_id)
    fields = {**_sent_fields(content), **status(owner, msg_id)}
    view = cast(MessageView, fields)
    view["result"] = _result(owner, msg_id, attempt)
    view.update(_attempts(owner, content, view["result"]))
    view.update(_of_state(owner, msg_id, state, attempt))
    if owner.admission.restored:
        view["_restored"] = owner.admission.restored
    if content.attachments:
        view["_attachments"] = _attachments(owner, content, view["path"])
    if state is State.QUE and (again := _next_attempt(view)) is not None:
        view["next_attempt"] = again
    if state in LIVE and (bounds := _limits(owner, content)):
        view["_limits"] = bounds
    view["story"] = _story(owner, msg_id, state, view)
    kept = retention.kept_by(owner.config)
    removed_at = retention.removed_at(kept, owner.spool, msg_id, state)
    if removed_at is not None:
        view["removed_at"] = removed_at
    return view


def _next_attempt(view: MessageView) -> NextAttempt | None:
    count, max_count = view.get("count", 0), view["max_count"]
    return next_attempt.of(view["result"], count, max_count, view["due"])


async def attempts(owner: Owner, msg_id: str) -> AttemptsView:
    """Return what is kept of the attempts on a message, with the one that runs. A script
    may have filled its folder: it is read in a thread."""
    run, pool = owner.loop.run_in_executor, owner.pools.looks
    while True:
        path = _settled(owner, msg_id)
        attempt = owner.attempts.of(msg_id)
        at_work = attempt is not None or owner.leases.of(msg_id) is not None
        running = _result(owner, msg_id, attempt) if at_work else None
        fd = owner.spool.dir_fd
        view = await run(pool, attempts_kept.listed, path, fd, running)
        if path == _settled(owner, msg_id):  # else the folder was moved meanwhile
            return view


def _settled(owner: Owner, msg_id: str) -> str:
    """Return where the folder of a message lies, if it can where it belongs."""
    state = owner.spool.state_of(msg_id)
    with contextlib.suppress(OSError):
        owner.spool.settle(msg_id)
    return owner.spool.place(msg_id) or folder(state, msg_id)


def _limits(owner: Owner, message: Message) -> dict[str, float]:
    """Return what limits an attempt on a message; nothing where only `grace` is said."""
    held = limits.of(owner.settings.limits, message.limits)
    return held.given() if held.is_any else {}


def _sent_fields(message: Message) -> JsonObject:
    """Return the fields of a message that are shown as its sender has said them."""
    return {
        name: value
        for name, value in message.to_json().items()
        if name not in NOT_SHOWN
    }


def _attempts(owner: Owner, message: Message, result: Result) -> MessageView:
    """Return what the file `msg` may not know yet of the attempts of a message."""
    entry = owner.spool.entry_of(message.msg_id)
    if entry is not None:
        return {"count": entry.count, "attempt": entry.attempt, "due": entry.due}
    return {"attempt": starts_of_ended(message, result)}


def _of_state(
    owner: Owner, msg_id: str, state: State, attempt: Attempt | None
) -> MessageView:
    """Return the facts that messages of one state only have."""
    if state is State.RUN:
        return {"phase": _phase(owner, msg_id, attempt)}
    if state is State.DISMISSED:
        return {"acknowledged": True}
    txn = owner.spool.txns.of(msg_id)
    return {} if txn is None else {"_txn": txn.txn_id}


def _phase(owner: Owner, msg_id: str, attempt: Attempt | None) -> str:
    if attempt is not None:
        return attempt.phase
    return LEASED if owner.leases.of(msg_id) else "starting"


def _result(owner: Owner, msg_id: str, attempt: Attempt | None) -> Result:
    """Return what is known of the last attempt, be it the one that runs."""
    lease = owner.leases.of(msg_id)
    if lease is not None:
        return _result_of(owner, lease)
    if attempt is None:
        return owner.spool.status(msg_id)
    batch = owner.attempts.batch_of(msg_id)
    return {
        "job_status": attempt.text,
        "attempt": attempt.message.attempt,
        "pid": attempt.script.pid,
        "started": attempt.work.began_at,
        "cpu_us": int(processes.cpu_seconds(attempt.script.pid) * 1e6),
        "printed": attempt.work.log.printed_at(),
        **({} if (log := attempt.work.log.part) is None else {"log": log}),
        **({} if batch is None else batch_fields(batch)),
    }


def _result_of(owner: Owner, lease: Lease) -> Result:
    """Return what is known of an attempt elsewhere."""
    away = owner.spool.clock() - owner.leases.now()
    return {
        "job_status": lease.text,
        "attempt": lease.held.attempt,
        "started": lease.held.since,
        **({} if lease.logged is None else {"log": [lease.held.base, None]}),
        "lease": {
            "hash": lease.held.token,
            "by": lease.by,
            "seconds": lease.seconds,
            "until": lease.deadline + away,
            "heard": lease.heard + away,
        },
    }


def read(owner: Owner, msg_id: str) -> Message:
    """Return a message; of one in err that cannot be read, what is known all the same:
    it must not hide, and its story says what is wrong with it."""
    try:
        return owner.spool.read(msg_id)
    except BadMessage as error:
        if owner.spool.find(msg_id) not in (State.ERR, State.DISMISSED):
            raise
        return Message(
            msg_id=msg_id,
            dest=owner.name,
            due=names.created(msg_id),
            extra={"unreadable": str(error)},
        )


def batch_fields(batch: Batch) -> BatchView:
    """Return what a message shows of the batch that it runs in."""
    return {"batch": batch.batch_id, "messages": len(batch), "left": batch.left}


def _attachments(
    owner: Owner, message: Message, path: str
) -> dict[str, AttachmentView]:
    base = f"{owner.root.path}/{path}/attach"
    return {
        name: {
            "sha256": file.sha256,
            "md5": file.md5,
            "size": file.size,
            "path": f"{base}/{name}",
        }
        for name, file in message.attachments.items()
    }


def _story(owner: Owner, msg_id: str, state: State, view: MessageView) -> StoryView:
    facts = {
        "attempt": view.get("attempt", 0),
        "max_count": view["max_count"],
        **view["result"],
        "count": view["count"],
        "lost_attempts": view.get("lost_attempts", 0),
        "id": msg_id,
    }
    if state is State.RUN:
        facts["held"] = owner.attempts.holder_of(msg_id)
        facts["leased"] = _leased(owner, msg_id)
    if state is State.QUE:
        why = waiting_view.why_waiting(owner, msg_id)
        facts["waiting"], view["_why"] = why.text, why.to_json()
        facts["needs"] = waiting_view.what_it_needs(owner, msg_id)
    txn = owner.spool.txns.of(msg_id)
    if txn is not None:
        facts["txn"] = txn.txn_id
    if state is State.PREP:
        prepared = waits.prepared(None if txn is None else txn.txn_id)
        view["_why"] = prepared.to_json()
    explained = story(state, facts)
    stuck = owner.spool.why_stuck(msg_id)
    if stuck is not None:
        text = (
            f"{explained.why} Its folder cannot be brought where it belongs: {stuck}."
        )
        todo = "See what holds the folder (a mount, a flag, the disk); RQ tries again."
        explained = replace(explained, why=text, todo=todo)
    return explained.to_json()


def _leased(owner: Owner, msg_id: str) -> str:
    """Say who works on a message elsewhere; "": no holder does."""
    lease = owner.leases.of(msg_id)
    if lease is None:
        return ""
    now = owner.leases.now()
    has_had = duration(max(0.0, owner.spool.clock() - lease.held.since))
    left = duration(max(0.0, lease.deadline - now))
    heard = f"was heard of {duration(now - lease.heard)} ago"
    if not lease.started:
        heard = "has not confirmed it yet"
    said = f"{lease.by} has had it for {has_had} and {heard}; its lease runs out in "
    said += f"{left} unless it is renewed"
    if lease.cancelled:
        said += f"; it was {lease.cancelled}, and its worker is told to end it"
    return said
