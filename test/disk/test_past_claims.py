"""When the last claims were: read from sealed segments and the one that is written."""

import pytest
from harness.spool import NOW

from rq.spool import journal_search
from rq.words.states import Event


def claim_at(owner, *moments):
    for moment in moments:
        owner.clock.now = moment
        msg_id = owner.submit(param1={"ev": "claim"})
        owner.spool.claim(msg_id, 0)
        owner.end(msg_id, Event.FINISH)
    owner.spool.commit()


def claims(owner, since):
    return journal_search.claims(owner.queue, owner.spool.journal_id, since)


@pytest.mark.parametrize("how", ["nothing", "seal", "crash", "stop"])
def test_claims_since_then_are_there_in_their_order(owner, how):
    moments = [NOW + n for n in range(6)]
    claim_at(owner, *moments[:3])
    if how == "seal":
        owner.spool.seal()
    elif how == "crash":
        owner.again()
    elif how == "stop":
        owner.apply()
        owner.stop()
        owner.open()
    claim_at(owner, *moments[3:])
    assert claims(owner, 0.0) == (None, moments)
    assert claims(owner, NOW + 2) == (NOW + 2, moments[2:])
    assert claims(owner, NOW + 2.5) == (NOW + 2.5, moments[3:])


def test_of_very_many_claims_the_last_are_read(owner, monkeypatch):
    monkeypatch.setattr(journal_search, "MOST_CLAIMS", 3)
    claim_at(owner, *(NOW + n for n in range(6)))
    assert claims(owner, NOW) == (NOW + 2, [NOW + 3, NOW + 4, NOW + 5])


def test_where_segments_are_missing_nothing_is_known(owner):
    claim_at(owner, NOW, NOW + 1)
    owner.spool.seal()
    owner.again()
    claim_at(owner, NOW + 5)
    for path in owner.queue.path.glob("journal/history/*/*.jsonl"):
        path.unlink()
    for path in owner.queue.path.glob("history/*/*.jsonl"):
        path.unlink()
    since, at = claims(owner, NOW - 100)
    assert at == [NOW + 5]
    assert since == NOW + 5  # when the first event was that is left
