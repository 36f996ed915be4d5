"""The table of commands: each row has a handler, and says what its handler does."""

import pytest

from rq.access.roles import Role
from rq.errors import BadInput
from rq.queues.control.command import request_in
from rq.queues.control.server import HANDLERS
from rq.rpc.lines.commands import COMMANDS, Lane, Takes

NEW = {
    "create_message",
    "create_messages",
    "prep_message",
    "single_que",
    "attach_message",
    "commit_message",
    "take_copy",
    "clone_message",
    "edit_message",
    "open_txn",
    "prepare_txn",
    "add_rows",
    "commit_txn",
}  # what the owner may slow down


def test_each_command_has_a_handler_and_each_handler_its_command():
    assert HANDLERS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("word", COMMANDS)
def test_what_workers_ask_and_what_creates_have_lines_of_their_own(word):
    command = COMMANDS[word]
    wanted = Lane.CREATE if command.creates else Lane.LOOK
    assert command.lane is (Lane.LEASE if command.role is Role.WORKER else wanted)
    assert not (command.looks and (command.creates or command.slow))


def test_what_accepts_something_new_shares_no_line_with_what_looks():
    assert {word for word, command in COMMANDS.items() if command.creates} == NEW
    lanes = {COMMANDS[word].lane for word in NEW}
    assert lanes.isdisjoint(c.lane for c in COMMANDS.values() if c.looks)


def test_what_a_command_takes_is_read_once_and_the_rest_refused():
    for takes in Takes:
        assert request_in(takes, b' {"msg_id": "a"}') == {"msg_id": "a"}
        with pytest.raises(BadInput, match="is not JSON"):
            request_in(takes, b"{")
    assert request_in(Takes.OPTIONAL, b" ") == request_in(Takes.ANYTHING, b"") == {}
    assert request_in(Takes.ANYTHING, b"all of them") == {}
    for takes in (Takes.OBJECT, Takes.OPTIONAL):
        with pytest.raises(BadInput, match="is not a JSON object"):
            request_in(takes, b"[]")
    with pytest.raises(BadInput, match="is not JSON"):
        request_in(Takes.OBJECT, b"")
