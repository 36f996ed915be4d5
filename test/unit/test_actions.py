"""The table of actions: each row is right, and each door knows each of its rows."""

from dataclasses import replace

import pytest

from rq.access.roles import Role
from rq.cli.change import _parser
from rq.cli.verbs import VERBS
from rq.message.action import Confirm, Door, Many
from rq.message.actions import ACTIONS, Word, _table, at, offered, offered_for_many
from rq.queues.bulk.actions import DOES
from rq.queues.control.server import HANDLERS
from rq.rpc.lines.commands import COMMANDS
from rq.web.api.actions import ROWS
from rq.web.api.bulks import NewBulk
from rq.web.api.readers import read
from rq.web.messages import _METHODS
from rq.web.pages.confirm import OF_MESSAGE
from rq.words.states import COUNTED, State

RETRY, CANCEL = ACTIONS[Word.RETRY], ACTIONS[Word.CANCEL]
# What makes a message or accepts one, and what ends a whole batch, are commands apart.
APART = {Word.COMMIT, Word.EDIT, Word.CLONE, Word.CANCEL_BATCH}


@pytest.mark.parametrize(
    "change",
    [
        {"about": "run it again"},
        {"explains": ""},
        {"states": ()},
        {"states": (State.ERR, State.ERR)},
        {"removes": (State.ERR,)},
        {"many": None},
        {"doors": frozenset({Door.CLI})},
        {"takes": (*ACTIONS[Word.MOVE].takes, *ACTIONS[Word.DUE].takes)},
        {"aliases": {Door.API: ("again",)}, "doors": frozenset(Door) - {Door.API}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_row_that_contradicts_itself_ends_the_import(change):
    with pytest.raises(ValueError, match="action retry: "):
        replace(RETRY, **change)


def test_a_word_has_one_row_and_one_meaning_at_a_door():
    rows = list(ACTIONS.values())
    with pytest.raises(ValueError, match="not those of Word"):
        _table(rows[:-1])
    again = replace(rows[-1], aliases={Door.REST: ("retry",)})
    with pytest.raises(ValueError, match="rest has two actions retry"):
        _table([*rows[:-1], again])


def test_the_owner_has_a_command_a_role_and_a_handler_for_each():
    for word, row in at(Door.SOCKET).items():
        assert COMMANDS[word].role.covers(Role(row.role))
        assert COMMANDS[row.command].role is COMMANDS[word].role
        assert word in HANDLERS
    assert set(DOES) == set(Word) - APART
    assert all(row.reply or row.word in APART for row in at(Door.SOCKET).values())


def test_a_bulk_does_each_that_is_for_many():
    assert set(at(Door.BULK)) <= set(DOES)
    for word in at(Door.BULK):
        assert read(NewBulk, {"action": word, "filter": {"state": "que"}})
    for state in COUNTED:
        assert all(state in row.all_states for row in offered_for_many(state))


def test_the_api_has_an_operation_for_each_word():
    paths = [row.path.rpartition("/")[2] for row in ROWS]
    words = [
        word.replace("cancel_batch", "cancelBatch").replace("_after", "After")
        for word in at(Door.API)
    ]
    assert paths == words
    assert {row.operation_id for row in ROWS if row.deprecated} == {
        "dismissMessage",
        "reopenMessage",
    }


def test_the_ancestors_methods_and_our_words_are_known_by_the_form():
    assert {"delete", "destroy", "commit", "run_now", "ack"} <= set(_METHODS)
    assert set(_METHODS) == set(at(Door.REST))
    assert CANCEL.command_of("destroy") == "destroy_message"
    assert ACTIONS[Word.RUN].command_of("run_now") == "run_message"


def test_a_page_asks_before_each_but_the_form_that_is_a_page_itself():
    assert set(OF_MESSAGE) == set(at(Door.PAGE)) - {Word.EDIT}
    for word, question in OF_MESSAGE.items():
        row = at(Door.PAGE)[word]
        assert (question.field is None) == (Door.REST not in row.doors)
        assert [name for name, *_ in question.asks] == [t.name for t in row.takes]
        assert (question.danger, question.home) == (row.danger, row.gone)


def test_each_that_has_a_verb_has_a_parser_with_what_it_takes():
    for word in set(at(Door.CLI)) - {Word.EDIT}:
        row = ACTIONS[Word(word)]
        assert VERBS[word] == (f"change:act {word}", row.summary)
        known = _parser(row).format_help()
        assert all(takes.option in known for takes in row.takes)
        assert ("--queue" in known) == (row.many is not None)


def test_what_is_held_or_runs_in_a_batch_has_other_actions():
    held = {row.word for row in offered(Door.PAGE, State.QUE, held=True)}
    assert held == {Word.RELEASE, Word.DELETE}
    [row] = offered(Door.PAGE, State.RUN, batch=True)
    assert row.word is Word.CANCEL_BATCH


def test_what_waits_is_removed_by_one_action_of_many():
    words = [row.word for row in offered_for_many(State.QUE)]
    assert Word.CANCEL in words
    assert Word.DELETE not in words


def test_texts_of_a_row_hold_only_what_it_is_done_with():
    for row in ACTIONS.values():
        given = {takes.name: "x" for takes in row.takes}
        assert row.reply == 1 or row.reply.format(**given)[:3] in ("msg", "")
        assert "{" not in row.done.format(new="x", **given)
        assert isinstance(row.confirm, Confirm | None)
        assert row.many is None or isinstance(row.many, Many)
