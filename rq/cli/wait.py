"""`rq wait`: until messages have ended."""

from __future__ import annotations

import time

from rq.cli import (
    ENDED_IN_ERR,
    NOT_FOUND,
    OK,
    TIMEOUT,
    ids,
    owner,
    place,
    term,
)
from rq.errors import NoSuchMessage, RQError, Unreachable
from rq.layout import Root
from rq.words import moments
from rq.words.states import FINAL, State

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
_PATIENCE = 10.0  # seconds an owner may be away, as in a restart

Target = tuple[str, str]  # queue, short id


def wait(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "wait",
        "Wait until messages have ended. Exit status: 0 all succeeded, 8 one ended in\n"
        "err, 7 the time is over.",
    )
    parser.add_argument("ids", nargs="+", metavar="ID", help=term.ID)
    parser.add_argument(
        "--timeout", metavar="TIME", help="wait no longer than 90 (seconds), 10m or 1h"
    )
    term.flag(parser, "--result", "print the result that was said of each, a line each")
    term.json_option(parser)
    args = parser.parse_args(words)
    timeout = None if args.timeout is None else moments.duration(args.timeout)
    with owner.Reader(root) as reader:
        targets = [ids.resolve(reader, text) for text in args.ids]
        ended = until_ended(reader, targets, timeout)
        if args.json:
            term.print_json(
                [
                    {
                        "queue": queue,
                        "msg_id": msg_id,
                        "state": state,
                        **_result(reader, queue, msg_id),
                    }
                    for (queue, msg_id), state in ended.items()
                ]
            )
        tell(reader, ended, quiet=args.json)
        if args.result and not args.json:
            _print_results(reader, ended)
    return exit_code(ended)


def _print_results(reader: owner.Reader, ended: dict[Target, State | None]) -> None:
    for queue, msg_id in ended:
        print(term.plain(_result(reader, queue, msg_id).get("result", "")))


def _result(reader: owner.Reader, queue: str, msg_id: str) -> dict[str, str]:
    """Return the result that was said of a message, if there is one."""
    try:
        result = reader.message(queue, msg_id).get("result", {})
    except RQError:
        return {}
    return {"result": result["result"]} if "result" in result else {}


def until_ended(
    reader: owner.Reader, targets: list[Target], timeout: float | None
) -> dict[Target, State | None]:
    """Return the state of each target when all have ended or the time is over."""
    deadline = None if timeout is None else time.monotonic() + timeout
    states: dict[Target, State | None] = dict.fromkeys(targets)
    pause = _FIRST_PAUSE
    while True:
        for target, state in states.items():
            if state not in FINAL:
                states[target] = _state(reader, target, deadline)
        if all(state in FINAL for state in states.values()):
            return states
        if deadline is not None and time.monotonic() + pause > deadline:
            return states
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, pause * 1.3)


def _state(reader: owner.Reader, target: Target, deadline: float | None) -> State:
    """Return where a message is; a queue that restarts is waited for, briefly."""
    given_up = time.monotonic() + _PATIENCE
    while True:
        state = reader.state(*target)
        if state in FINAL or reader.online(target[0]):
            break
        over = time.monotonic() > min(given_up, deadline or given_up)
        if over or not place.is_running(reader.root):
            raise Unreachable(
                f"{target[0]}/{target[1]} is in {state}, and its queue is not running"
            )
        time.sleep(_LONGEST_PAUSE)
        reader.forget(target[0])
    if state is None:
        raise NoSuchMessage(f"there is no message {target[1]} in queue {target[0]}")
    return state


def tell(
    reader: owner.Reader, ended: dict[Target, State | None], *, quiet: bool
) -> None:
    """Say in a line each what became of the messages."""
    if quiet:
        return
    for (queue, msg_id), state in ended.items():
        still = "" if state is None or state in FINAL else "has not ended: "
        sentence = _sentence(reader, queue, msg_id)
        term.note(f"{queue}/{msg_id} {state}: {still}{sentence}")


def _sentence(reader: owner.Reader, queue: str, msg_id: str) -> str:
    try:
        story = reader.message(queue, msg_id)["story"]
    except (RQError, KeyError):
        return ""
    return term.plain(f"{story['what']} {story['why']}")


def exit_code(ended: dict[Target, State | None]) -> int:
    """Return the worst that became of the messages."""
    states = set(ended.values())
    if None in states:
        return NOT_FOUND
    if not states <= FINAL:
        return TIMEOUT
    return ENDED_IN_ERR if states & {State.ERR, State.DISMISSED} else OK
