"""Each kind of failure has one type, status, exit code and row; nobody reads sentences."""

import inspect

import pytest
from harness import documents

from rq import cli, errors, kinds
from rq.kinds import PASSING, Kind
from rq.relay.answers import HEARD_OF
from rq.relay.two_phase import Heard
from rq.rpc import client, wire
from rq.web.statuses import KIND_OF_HTTP, KINDS, STATUS_OF

TYPES = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, errors.RQError)
]


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_comes_back_from_the_socket_as_it_went(kind):
    error = wire.error_of(kind, "a text")
    assert (error.kind, str(error)) == (kind, "a text")
    reply = wire.failure(error, with_kind=True)
    assert reply == ["fail", "a text", kind]
    again = wire.failure_in(reply, "mail: ")
    assert (type(again), str(again)) == (type(error), "mail: a text")


def has_kind(error):
    """Whether a type has a kind of its own or of what it is a case of; that of `RQError`,
    of which all are, tells nothing of them."""
    every = error.__mro__
    of_its_own = every[: every.index(errors.RQError)] or every[:1]
    return any("kind" in vars(base) for base in of_its_own)


@pytest.mark.parametrize("error", TYPES, ids=lambda error: error.__name__)
def test_each_type_has_a_kind_of_its_own_or_of_what_it_is_a_case_of(error):
    assert error.kind in Kind
    assert has_kind(error)


def test_a_type_that_was_given_no_kind_is_seen():
    class Kindless(errors.RQError):
        pass

    assert not has_kind(Kindless)


def test_the_tables_of_all_doors_know_all_kinds():
    assert set(STATUS_OF) == set(cli.EXIT_OF) == set(Kind)
    assert set(HEARD_OF) <= set(Kind)


def test_the_doors_agree_on_what_passes():
    by_status = {kind for kind in Kind if STATUS_OF[kind] in (429, 503, 504)}
    assert by_status | {Kind.INTERNAL} == PASSING
    silent = {kind for kind, heard in HEARD_OF.items() if heard is Heard.SILENT}
    assert silent == PASSING


def test_the_reference_tells_what_each_kind_means_at_each_door():
    page = documents.text(documents.REFERENCE / "failures.md")
    table = documents.rows(page, "kind")
    told = {row[0].strip("`"): (row[2], row[3], row[4]) for row in table}
    assert told == {
        kind: (
            str(STATUS_OF[kind]),
            str(cli.EXIT_OF[kind]),
            "yes" if kind in PASSING else "no",
        )
        for kind in Kind
    }


def test_the_reference_tells_each_kind_of_what_http_refuses():
    page = documents.REFERENCE / "failures.md"
    table = documents.rows(documents.section(page, "What HTTP refuses"), "word")
    told = {int(row[1]): row[0].strip("`") for row in table}
    assert told == KIND_OF_HTTP
    assert (*Kind, *(word for word in told.values() if word not in [*Kind])) == KINDS


def test_who_does_not_ask_for_kinds_gets_the_two_words_of_old():
    assert wire.failure(errors.Down("status: DOWN"), with_kind=False) == [
        "fail",
        "status: DOWN",
    ]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (["fail", "status: DOWN"], Kind.DOWN),  # of an RQ that tells no kinds
        (["fail", "never heard"], Kind.REFUSED),
        (["fail", "never heard", "a kind of tomorrow"], Kind.REFUSED),
        (["fail", "status: DOWN", "busy"], Kind.BUSY),
    ],
)
def test_the_sentence_counts_only_where_no_kind_is_told(reply, kind):
    assert wire.failure_in(reply).kind is kind


@pytest.mark.parametrize("reply", [["ok", "x"], ["pong"], [], ["fail"], {}, None, "x"])
def test_what_is_no_failure_is_none(reply):
    assert wire.failure_in(reply) is None


REFUSED, OK = b'["fail","too many connections","busy"]', b'["ok"]'


@pytest.mark.parametrize(
    ("come", "replies"),
    [
        ([OK, b"1", b"2"], [b"1", b"2"]),
        ([b'["ERROR"]', b"1"], [b"1"]),  # an earlier RQ knows no such command
        ([REFUSED], [REFUSED]),  # and the connection ends
        ([REFUSED, b"1", b"2"], [REFUSED, b"2"]),  # a disk failed, and works again
        ([REFUSED, REFUSED, b"2", b"3"], [REFUSED, b"2", b"3"]),
    ],
)
@pytest.mark.parametrize("at_once", [1, 2, 9])
def test_each_request_behind_kinds_gets_one_reply(come, replies, at_once):
    asked = client.Kinds()
    assert asked.request() == wire.request("kinds")
    parts = [come[at : at + at_once] for at in range(0, len(come), at_once)]
    assert [reply for part in parts for reply in asked.without(part)] == replies


def test_words_for_programs_are_plain():
    assert all(kind.isascii() and kind.replace("_", "").islower() for kind in Kind)
    assert kinds.HEADER.startswith("X-RQ-")
