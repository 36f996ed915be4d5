"""The fate of a message whose lease is over, told to a holder that still has its token."""

from __future__ import annotations

from rq.errors import LeaseForgotten, LeaseOver
from rq.queues.attempts import lease
from rq.spool import Spool
from rq.spool.leases import Ended
from rq.words.states import Event, State
from rq.words.wording import moment

_WHAT = {
    Event.FINISH: "finished as done",
    Event.FAIL: "ended as err",
    Event.RETRY: "sent round again",
    Event.RECOVER: "taken back",
    Event.REQUEUE: "given back",
}


def ended_by(spool: Spool, token: str, word: str) -> State | None:
    """Return where a message is now whose holder has ended it before by the same word (a
    digest of it); None: that is not so, or is not remembered."""
    msg_id, _ = lease.parse_token(token)
    hashed = lease.digest(token)
    ended = spool.ended_leases.of(hashed)
    before = ended.word if ended is not None else _word_in_status(spool, msg_id, hashed)
    if not before or before != word:
        return None
    return spool.find(msg_id) or State.GONE


def _word_in_status(spool: Spool, msg_id: str, hashed: str) -> str:
    if spool.find(msg_id) is None:
        return ""
    lease_of = spool.status(msg_id).get("lease", {})
    return lease_of.get("word", "") if lease_of.get("hash") == hashed else ""


def failure(spool: Spool, token: str) -> LeaseOver:
    """Return why a word with this token is refused; BadInput if it is no token."""
    msg_id, attempt = lease.parse_token(token)
    ended = spool.ended_leases.of(lease.digest(token))
    if ended is not None:
        return LeaseOver(_sentence(ended))
    state = spool.find(msg_id)
    if state is None:
        return LeaseForgotten(
            f"message {msg_id} is not here any more: it is too long ago to tell what "
            "became of its lease"
        )
    return LeaseOver(_as_it_stands(spool, msg_id, attempt, state))


def _sentence(ended: Ended) -> str:
    what = _WHAT.get(Event(ended.event), "ended")
    whose = f"by {ended.by}, which held it" if ended.word else f"from {ended.by}"
    return (
        f"the lease is over: message {ended.msg_id} was {what} {whose}, at "
        f"{moment(ended.at)} UTC"
    )


def _as_it_stands(spool: Spool, msg_id: str, attempt: int, state: State) -> str:
    """Say where a message is of which it is not remembered how this attempt ended."""
    entry = spool.entry_of(msg_id)
    held = spool.leases.get(msg_id)
    if held is not None and held.attempt == attempt:
        return (
            f"no lease has this token: attempt {attempt} of message {msg_id} is leased to "
            f"{held.by} by another one"
        )
    if entry is not None and entry.attempt > attempt:
        who = f", leased to {held.by}" if held is not None else ""
        return (
            f"the lease is over: message {msg_id} is in {state}, in attempt "
            f"{entry.attempt}{who}, and the token is of attempt {attempt}"
        )
    status = spool.status(msg_id)
    since = f" since {moment(status['finished'])} UTC" if "finished" in status else ""
    return f"the lease is over: message {msg_id} is in {state}{since}"
