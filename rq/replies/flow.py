"""What is told of a flow: its messages, how each stands, and what waits for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict


class NodeView(TypedDict):
    """A message of a flow."""

    name: str  # `#N`, of one that the reader may not see
    mark: str  # how it stands, a word of `flow.marks.Mark`
    layer: int  # from 1; it waits for messages of lower ones
    after: Sequence[str]  # names
    queue: NotRequired[str]
    msg_id: NotRequired[str]  # once it is sent
    state: NotRequired[str]
    was: NotRequired[str]  # QUEUE/ID as it was sent, of one that was moved or edited
    text: NotRequired[str]  # of one that runs or has failed: the last that was said


class FlowEnd(TypedDict):
    """The message of the queue `flow` that tells the webhooks of a flow of its end."""

    msg_id: str
    state: str
    text: str  # what it does, in a sentence


class FlowView(TypedDict):
    """A flow as a whole."""

    msg_id: str  # of the message of the queue `flow` that sends it
    name: str
    mark: str
    text: str  # how it stands, in a sentence
    is_begun: bool  # all of it is sent: its messages run
    sent: float  # epoch seconds
    by: str  # who has sent it; "": RQ itself
    sums: Mapping[str, int]  # messages by mark; those without any are left out
    nodes: Sequence[NodeView]
    end: NotRequired[FlowEnd]  # of one with `post_run_webhook`


class FlowRow(TypedDict):
    """A flow in a list."""

    msg_id: str
    name: str
    mark: str
    text: str
    is_begun: bool
    sent: float  # epoch seconds
    by: str  # who has sent it; "": RQ itself
    sums: Mapping[str, int]
