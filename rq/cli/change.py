"""The verbs that change messages: one for each action of the table that has a verb.

Each takes ids, or all messages of a queue that match (`--queue`). What only a few take
stands here beside them: `ack --all`, `cancel --batch`. What removes a message asks first.
"""

from __future__ import annotations

import argparse
import os
import pwd
import time
from collections.abc import Callable, Mapping

from rq.cli import OK, bulk, ids, owner, place, term
from rq.errors import RQError, WrongState
from rq.layout import Root
from rq.message.action import Action
from rq.message.actions import ACTIONS, Word
from rq.words.nesting import Json
from rq.words.states import LIVE, State

Change = Callable[[Root, str, str], str]  # queue, msg_id -> what became of it
Given = Mapping[str, Json]  # what an action is done with

# How a message is that cannot be changed as a person wants it.
_IS = {
    State.PREP: "is being prepared",
    State.QUE: "waits to run",
    State.RUN: "is running",
    State.DONE: "has succeeded",
    State.RELAYED: "was handed over to another queue or host",
    State.ERR: "has failed",
    State.DISMISSED: "has failed",
}


def act(verb: str, root: Root, words: list[str]) -> int:
    """Do an action to the messages that are named, or to all that match."""
    action = ACTIONS[Word(verb)]
    parser = _parser(action)
    args = parser.parse_args(words)
    if action.word is Word.ACK:
        _all_of_queue(parser, args)
    now = time.time()
    given: Given = {
        takes.name: takes.said(getattr(args, takes.name), now, None)
        for takes in action.takes
    }
    if action.many is not None:
        bulk.check(parser, args)
        if bulk.is_many(args):
            if action.word is Word.RELEASE and args.after:
                parser.error("--after is for messages that are named by their ids")
            to = next(iter(given.values()), None)
            return bulk.run(root, action, args, who(), to)
    return each(root, args, _change(action, args, given))


def _parser(action: Action) -> argparse.ArgumentParser:
    removed = " One that waits is removed, after a question." if action.removes else ""
    about = f"{action.about} {action.explains}{removed}"
    parser = term.parser(action.word, about)
    if action.many is None:
        parser.add_argument("ids", nargs="+", metavar="ID", help=term.ID)
    else:
        parser.add_argument("ids", nargs="*", metavar="ID", help=term.ID)
        bulk.options(parser, action.many.state)
        parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    for takes in action.takes:
        parser.add_argument(
            takes.option,
            dest=takes.name,
            required=takes.is_required,
            default=takes.default,
            metavar=takes.metavar,
            help=takes.help,
        )
    if action.word is Word.ACK:
        parser.add_argument(
            "--all", metavar="QUEUE", help="all messages in err of a queue"
        )
    elif action.word is Word.CANCEL:
        text = ACTIONS[Word.CANCEL_BATCH].summary
        term.flag(parser, "--batch", text)
    elif action.word is Word.RELEASE:
        text = ACTIONS[Word.RELEASE_AFTER].summary
        term.flag(parser, "--after", text)
    return parser


def _all_of_queue(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """`ack --all QUEUE` is `ack --queue QUEUE --yes`."""
    if args.all and (args.ids or args.queue):
        parser.error("say which: ID..., --queue QUEUE or --all QUEUE")
    if args.all:
        args.queue, args.yes = args.all, True


def _change(action: Action, args: argparse.Namespace, given: Given) -> Change:
    """Return what is done to each message that is named."""
    if action.word is Word.CANCEL and args.batch:
        action = ACTIONS[Word.CANCEL_BATCH]
    elif action.word is Word.RELEASE and args.after:
        action = ACTIONS[Word.RELEASE_AFTER]
    elif action.word in (Word.CANCEL, Word.DELETE):
        return lambda *target: _remove(action, *target, yes=args.yes)

    def change(root: Root, queue: str, msg_id: str) -> str:
        with owner.Reader(root) as reader:
            state = reader.state(queue, msg_id)
        _check_state(action, queue, msg_id, state)
        return _changed(root, (queue, msg_id), action, given)

    return change


def _check_state(action: Action, queue: str, msg_id: str, state: State | None) -> None:
    """WrongState, in words, unless the action is for messages in a state. Those that are
    acknowledged are shown as in err: the owner tells them apart."""
    may = {State.ERR if s is State.DISMISSED else s for s in action.states}
    if state in _IS and state not in {*may, *action.states}:
        states = ", ".join(action.all_states)
        raise WrongState(
            f"{queue}/{msg_id} {_IS[state]}: `rq {action.word}` is for messages in "
            f"{states}"
        )


def _changed(root: Root, target: tuple[str, str], action: Action, given: Given) -> str:
    """Ask for an action; return what became of the message."""
    queue, msg_id = target
    try:
        reply = owner.demand(root, queue, action.command, {**request(msg_id), **given})
    except WrongState as error:
        text = str(error)
        of_it = text.removeprefix("msg ")
        joint = " " if of_it != text else ": "
        raise WrongState(f"{queue}/{msg_id}{joint}{of_it}") from None
    if action.already and reply == f"msg {action.already}":
        return action.already
    texts = dict(given)
    if "due" in texts:
        texts["due"] = term.moment(float(str(texts["due"])))
    return action.done.format(**texts)


def _remove(action: Action, root: Root, queue: str, msg_id: str, *, yes: bool) -> str:
    """Delete a message, after asking; or cancel one: end it if it runs."""
    with owner.Reader(root) as reader:
        state = reader.state(queue, msg_id)
    delete = ACTIONS[Word.DELETE]
    if action.word is Word.CANCEL:
        if state is State.RUN:
            return _changed(root, (queue, msg_id), action, {})
        if state not in LIVE:
            _check_state(action, queue, msg_id, state)
            raise WrongState(f"{queue}/{msg_id} is gone")
    elif state is State.RUN:
        raise WrongState(f"{queue}/{msg_id} is running: `rq cancel` it first")
    question = f"Delete {queue}/{msg_id} (in {state}) for good?"
    if not term.confirm(question, yes=yes):
        return "kept"
    return _changed(root, (queue, msg_id), delete, {})


def request(msg_id: str) -> dict[str, Json]:
    return {"msg_id": msg_id, "who": who()}


def who() -> str:
    """Return the name of the person who asks, seen through sudo."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    behind = os.environ.get("SUDO_USER")
    return f"{behind} ({name})" if behind and behind != name else name


def each(root: Root, args: argparse.Namespace, act: Change) -> int:
    """Change each message and say so; when one cannot be changed, the others are."""
    place.demand_running(root)
    with owner.Reader(root) as reader:
        targets = [ids.resolve(reader, text) for text in args.ids]
    if len(targets) == 1:
        queue, msg_id = targets[0]
        print(f"{queue}/{msg_id} {act(root, queue, msg_id)}")
        return OK
    return max(_caught(root, target, act) for target in targets)


def _caught(root: Root, target: tuple[str, str], act: Change) -> int:
    from rq.cli import EXIT_OF, complain

    queue, msg_id = target
    try:
        print(f"{queue}/{msg_id} {act(root, queue, msg_id)}")
    except RQError as error:
        text = str(error)
        complain(text if msg_id in text else f"{queue}/{msg_id}: {text}")
        return EXIT_OF[error.kind]
    return OK
