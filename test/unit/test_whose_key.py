"""Whose a key is, for whom a message is sent, and who may change what is prepared."""

import pytest

from rq.access.roles import Principal, Role
from rq.access.sockets import Asker
from rq.errors import BadInput, NotPermitted
from rq.message import fieldnames
from rq.proc.peers import Peer
from rq.queues.control import idempotency as of
from rq.queues.control.idempotency import Key, Preparer
from rq.spool.transactions import Transaction

OUTBOX = "0123abcd/12/3"


def _asker(name, *, is_own=False, role=Role.PRODUCER):
    return Asker(Principal(name=name, role=role), Peer(1, 7, 7), is_own)


ANN, OWN = _asker("ann"), _asker("rq", is_own=True, role=Role.ADMIN)


@pytest.mark.parametrize(
    ("asker", "text", "said", "key"),
    [
        (ANN, "k", None, Key("k", "ann\tk", "k")),
        (ANN, "k", "bob", Key("k", "ann\tk", "k")),  # only RQ says for whom it asks
        (OWN, "k", None, Key("k", "rq\tk", "k")),
        (OWN, "k", "bob", Key("k", "bob\tk", "k")),
        (ANN, "timer/x", None, Key("timer/x", "ann\ttimer/x", None)),
        (ANN, "relay/x", None, Key("relay/x", "ann\trelay/x", None)),
        (ANN, OUTBOX, None, Key(OUTBOX, f"ann\t{OUTBOX}", None)),
        (OWN, "timer/x", None, Key("timer/x", "timer/x", None)),
        (OWN, OUTBOX, None, Key(OUTBOX, OUTBOX, None)),
        (OWN, OUTBOX + "x", None, Key(OUTBOX + "x", f"rq\t{OUTBOX}x", OUTBOX + "x")),
        (OWN, "timer/x", "bob", Key("timer/x", "bob\ttimer/x", None)),
        (OWN, "relay/x", "bob", Key("relay/x", "bob\trelay/x", "relay/x")),
    ],
)
def test_a_key_is_its_users_and_rqs_own_meets_no_users(asker, text, said, key):
    request = {of.KEY: text, "param1": "a"}
    if said is not None:
        request[of.KEY_OF] = said
    assert of.key_in(asker, request) == key
    assert request == {"param1": "a"}


def test_who_says_no_key_has_none():
    assert of.key_in(ANN, {}) is None
    assert of.key_of_txn(ANN, {}) is None
    assert of.key_of_txn(ANN, {"key": None}) is None


def test_the_key_of_a_transaction_meets_what_was_remembered_of_whichever_user():
    request = {"key": "spark/1", of.KEY_OF: "bob"}
    assert of.key_of_txn(ANN, request) == Key("spark/1", "ann\tspark/1", "spark/1")
    assert of.key_of_txn(OWN, request) == Key("spark/1", "bob\tspark/1", "spark/1")
    with pytest.raises(BadInput, match="key is not a string: 5"):
        of.key_of_txn(ANN, {"key": 5})


@pytest.mark.parametrize("key", ["", "x" * 201, "a\n", "\u202e", "a\tb"])
def test_a_key_is_1_to_200_printable_characters(key):
    assert of.checked("x", "key") == "x"
    assert of.checked("é" * 200, "key") == "é" * 200
    with pytest.raises(BadInput, match="_key is not 1 to 200 printable characters"):
        of.key_in(ANN, {of.KEY: key})


@pytest.mark.parametrize("user", ["", "x" * 201, "a\tb", 5, True, []])
def test_a_user_is_named_by_a_text_that_is_taken_for_no_other(user):
    with pytest.raises(BadInput, match="_key_of is not the name of a user"):
        of.key_in(OWN, {of.KEY: "k", of.KEY_OF: user})
    assert of.key_in(OWN, {of.KEY: "k", of.KEY_OF: "x" * 200}).kept == "x" * 200 + "\tk"


@pytest.mark.parametrize(
    ("asker", "said", "sender"),
    [
        (ANN, None, "ann"),
        (ANN, "bob", "ann"),
        (ANN, "", "ann"),
        (OWN, None, "rq"),
        (OWN, "bob", "bob"),
        (OWN, "", None),
    ],
)
def test_rq_alone_says_for_whom_it_sends(asker, said, sender):
    request = {} if said is None else {of.BY: said}
    assert of.sender_in(asker, request) == sender
    assert request == {}


@pytest.mark.parametrize(
    ("asker", "request_", "preparer"),
    [
        (ANN, {}, Preparer("ann", False, "ann")),
        (
            ANN,
            {of.PREPARER: "bob", of.AS_OPERATOR: True},
            Preparer("ann", False, "ann"),
        ),
        (_asker("eve", role=Role.OPERATOR), {}, Preparer("eve", True, "eve")),
        (OWN, {}, Preparer("", True, "rq")),
        (OWN, {of.PREPARER: "bob"}, Preparer("bob", False, "rq")),
        (OWN, {of.PREPARER: "bob", of.AS_OPERATOR: True}, Preparer("bob", True, "rq")),
        (OWN, {of.PREPARER: "bob", of.AS_OPERATOR: 1}, Preparer("bob", False, "rq")),
        (OWN, {of.AS_OPERATOR: False, of.BY: "bob"}, Preparer("", True, "bob")),
    ],
)
def test_as_whom_something_is_prepared(asker, request_, preparer):
    assert of.preparer_in(asker, request_) == preparer
    assert request_ == {}


@pytest.mark.parametrize(
    ("key", "preparer", "may"),
    [
        (None, None, True),  # the version before named no user
        ("k", None, True),
        ("ann\tk", None, True),
        ("bob\tk", None, False),
        ("bob\tk", "ann", False),  # a key says more
        (None, "ann", True),
        (None, "bob", False),
        (None, "", False),
        ("k", "bob", False),
    ],
)
def test_what_a_user_prepares_others_leave_alone_but_for_operators(key, preparer, may):
    txn = Transaction("t1", key, 1.0, 1.0, preparer=preparer)
    Preparer("ann", True).check(txn)
    if may:
        Preparer("ann", False).check(txn)
    else:
        with pytest.raises(NotPermitted, match="transaction t1 is prepared by another"):
            Preparer("ann", False).check(txn)


def test_the_fields_of_rq_begin_with_a_line_that_no_message_has():
    names = (of.KEY, of.KEY_OF, of.PREPARER, of.AS_OPERATOR, of.BY)
    assert len(set(names)) == 5
    assert all(name.startswith("_") for name in names)
    assert fieldnames.RELAY_KEY == "relay/"
