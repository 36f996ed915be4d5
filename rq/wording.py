"""The text of an attempt, as a status has it, made fit for a sentence.

The status keeps the ancestor's words, which programs know; a person reads these.
"""

from __future__ import annotations

import re

_IMPROPER = re.compile(
    r"PROCESS EXITED IMPROPERLY - MOVING TO ERR - "
    r"Completion was (\w+) but exit status was \S+(?: - (.*))?",
    re.DOTALL,
)
_DELAY = re.compile(r"\d+-?")
_NO_QUEUE = "couldn't connect to queue - "


def reason(text: str) -> str:
    """Return why a script asks for another attempt, without the seconds before it.

    >>> [reason(one) for one in ("900-no route", "5-", "5")]
    ['no route', '', '']
    """
    return _DELAY.sub("", text, count=1) if _DELAY.match(text) else text


def improper(text: str) -> tuple[str, str]:
    """Return the word that a script reported before it ended as it should not, and the
    last that it said.

    >>> start = "PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was "
    >>> improper(start + "done but exit status was 3 - all well")
    ('done', 'all well')
    >>> improper(start + "none but exit status was SIGKILL")
    ('', '')
    """
    found = _IMPROPER.fullmatch(text)
    if found is None:
        return "", text
    word, said = found[1], found[2] or ""
    last = reason(said) if word in ("resend", "later") else said
    return "" if word == "none" else word, last


def refusal(text: str) -> str:
    """Return why nobody took what was to be handed on.

    >>> refusal("forward failed - couldn't connect to queue - b")
    'there is no queue b, or nobody answers for it'
    >>> refusal("forward failed - status: DOWN")
    'the queue is DOWN'
    """
    said = text.removeprefix("forward failed - ")
    if said.startswith(_NO_QUEUE):
        queue = said.removeprefix(_NO_QUEUE)
        return f"there is no queue {queue}, or nobody answers for it"
    if said.startswith("status: "):
        return f"the queue is {said.removeprefix('status: ')}"
    return said


def times(count: object) -> str:
    """Return how often.

    >>> [times(n) for n in (1, 2, None)]
    ['once', '2 times', '? times']
    """
    return "once" if count == 1 else f"{'?' if count is None else count} times"


def ended(sentence: str) -> str:
    """Return a sentence with its full stop, unless it ends with an address or a path.

    >>> [ended(one) for one in ("It ran: ", "It said: why?", "It is at http://h/q/x")]
    ['It ran.', 'It said: why?', 'It is at http://h/q/x']
    """
    sentence = sentence.rstrip(": ")
    last = sentence.rpartition(" ")[2]
    return (
        sentence if sentence[-1:] in (".", "!", "?") or "/" in last else f"{sentence}."
    )
