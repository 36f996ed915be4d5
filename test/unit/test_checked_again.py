"""A command that looks, waits and then acts looks again, or has claimed what it looked at.

While it waits others have their turns, so what was true may be so no more. Which commands
may wait is read from the code; the table says for each why that is safe.
"""

from __future__ import annotations

import inspect

from rq.queues.control.server import HANDLERS

LOOKS_ONLY = "nothing is changed"
SAFE = {
    # It is claimed before the wait.
    "attach_message": "an upload marks its message as busy: no commit, no removal",
    "commit_message": "an equal commit waits for the first one; the queue is open, again",
    "commit_txn": "`deciding` is set in the turn of the request; open and in time, again",
    "abort_txn": "`deciding` is set in the turn of the request; its head is looked at again",
    "prepare_txn": "`filling` is set in the turn of the request; open, again for each",
    "add_rows": "`filling` is set in the turn of the request; open, again",
    "drop_rows": "it waits for who decides or fills, and begins then",
    "retry_message": "`retry.hold`; its version is looked at again",
    "move_message": "`retry.hold`, and its version again; what waits is moved at once",
    # It is looked at again after the wait.
    "edit_message": "its version, and the new one is accepted as the old one is ended",
    "clone_message": "the copy is whole, of a message that had ended; open, again",
    "take_copy": "its key and whether the queue is open, again",
    "prep_message": "its key and whether the queue is open, after what was prepared is read",
    "delete_attach_message": "`attach.check_open`, again",
    "create_message": "with `after`: its key and whether the queue is open, again",
    "single_que": "as `create_message`: equal waiting ones are of no harm to `after`",
    "create_messages": "each is checked as it is accepted",
    "ack_errs": "each is in err still, and has not left it since",
    "bulk": "the queue is open, again; the worker looks at each message again",
    "expire": "each rests in its state still",
    "lease": "it is granted in the turn that answers; who has gone gives it back",
    "finish": "the token holds a lease, again",
    "file": "the token holds a lease, again, before that is renewed",
    "start": "each token for itself, at its turn",
    "renew": "each token for itself, at its turn",
    "release": "each token for itself, at its turn",
    "wake": "the files are read after it was asked",
    "check": "with `fix` a difference of one moment is added to what is counted by now",
    "seal": "it is the journal's end of that moment",
    # It changes nothing.
    **dict.fromkeys(
        ("await_end", "ends", "get_attempts", "list", "list_txns", "messages"),
        LOOKS_ONLY,
    ),
}
_WAITS = ("Awaitable", "NowOrLater")


def may_wait(handler):
    """Whether a handler may answer in a later turn, as its signature says, or because it
    was wrapped by `_one_by_one`, which waits for those before it."""
    returns = str(inspect.signature(handler).return_annotation)
    is_wrapped = hasattr(handler, "__wrapped__")
    later = inspect.iscoroutinefunction(handler) or is_wrapped
    return later or any(word in returns for word in _WAITS)


def test_of_each_command_that_may_wait_the_table_says_why_it_is_safe():
    wait = {word for word, handler in HANDLERS.items() if may_wait(handler)}
    assert wait == set(SAFE)


def test_a_handler_that_waits_says_so():
    """Else it would be missing above."""
    for word, handler in HANDLERS.items():
        source = inspect.getsource(inspect.unwrap(handler))
        if "await " in source:
            assert may_wait(handler), word
