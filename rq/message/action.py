"""A row of the table of actions: what a door has to know of one (`message.actions`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from rq.words.states import State

if TYPE_CHECKING:
    from rq.words.nesting import Json

Value = float | int | str  # what an action is done with


class Door(StrEnum):
    """Where it can be asked for."""

    SOCKET = "socket"  # a command of the owner
    BULK = "bulk"  # for all messages that match
    API = "api"  # an operation of /api/v1
    REST = "rest"  # `_method` of the ancestor's POST /q/NAME/ID
    PAGE = "page"  # a button
    CLI = "cli"  # a verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What an action is done with."""

    name: str  # the field of the command
    label: str  # of the field in a form
    option: str  # of the verb
    metavar: str
    help: str
    read: Callable[[Json], Value]  # BadMessage, BadInput: it cannot be meant
    said: Callable[
        [str, float, tzinfo | None], Json
    ]  # as people say it, now, in a zone
    example: str = ""  # in the form
    default: str | None = None  # what stands for it when it is not given
    optional: bool = False  # it may be left out, where others are given

    @property
    def is_required(self) -> bool:
        return self.default is None and not self.optional


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """The question that a page asks before it acts."""

    title: str
    button: str = ""  # the label of the action, if nothing else is said


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """How it is spoken of when it is done to all messages that match."""

    question: str  # of the command line; {}: how many
    done: str  # what became of those that were changed
    state: State | None = None  # that is meant if none is named


EVERYWHERE: Final = frozenset(Door)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that may be done to a message. ValueError for a row that contradicts
    itself: then RQ does not start."""

    word: str
    label: str  # of a button
    about: str  # what it does, in a sentence
    explains: str  # what comes of it: beside the question, and in the help of the verb
    done: str  # behind the message's id, when it is done; {NAME}: what it was done with
    states: tuple[State, ...]
    asks: str = ""  # the command, if it is not WORD_message
    reply: str | int = ""  # of the command
    already: str = ""  # behind `msg `, when it is so already
    role: Literal["producer", "operator"] = "operator"  # that a request needs
    takes: tuple[Takes, ...] = ()
    confirm: Confirm | None = None  # None: nothing is asked
    many: Many | None = None
    doors: frozenset[Door] = EVERYWHERE
    aliases: Mapping[Door, tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    removes: tuple[State, ...] = ()
    held: bool | None = None  # only for one that is held, or only for one that is not
    waits: bool | None = None  # only for one that waits for others
    batch: bool | None = None  # only for one of many in a batch, or only for one alone
    runs_again: bool = False  # of its last attempt nothing may be left
    gone: bool = False  # there is no message afterwards
    danger: bool = False
    quick: bool = False  # its button is also in lists
    icon: str = ""
    key: str = ""  # that presses its button

    def __post_init__(self) -> None:
        wrong = [what for what, is_right in self._rules() if not is_right]
        if wrong:
            raise ValueError(f"action {self.word}: {', '.join(wrong)} is not right")

    def _rules(self) -> list[tuple[str, bool]]:
        return [
            ("about", self.about.endswith(".") and self.about[0].isupper()),
            ("explains", self.explains.endswith(".")),
            ("states", len(set(self.all_states)) == len(self.all_states) > 0),
            ("many", (self.many is not None) == (Door.BULK in self.doors)),
            ("takes", self.many is None or len(self.takes) <= 1),
            ("confirm", self.confirm is None or Door.PAGE in self.doors),
            ("aliases", self.aliases.keys() <= self.doors),
        ]

    @property
    def command(self) -> str:
        """The command of the owner by which it is done."""
        return self.asks or f"{self.word}_message"

    @property
    def all_states(self) -> tuple[State, ...]:
        """The states that a bulk may find messages in."""
        return self.removes + self.states

    @property
    def summary(self) -> str:
        """What its verb does, as part of a list."""
        more = ", remove one that waits" if self.removes else ""
        return f"{self.about[0].lower()}{self.about[1:-1]}{more}"

    def command_of(self, word: str) -> str:
        """Return the command by which one of its words is answered: an old word of the
        ancestor's has the ancestor's reply."""
        old = f"{word}_message"
        return old if old in self.aliases.get(Door.SOCKET, ()) else self.command

    def refuses(self, state: State) -> str:
        """Return why it is not done to many messages that are in a state."""
        may = ", ".join(self.all_states)
        return f"{self.word} is for messages in {may}, not for those in {state}"
