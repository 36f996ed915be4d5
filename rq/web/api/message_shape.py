"""The shapes of a message, as it is sent and as it is shown: made of the table of fields, so
that each field has its place in both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypedDict

from rq.message import table as fields
from rq.replies import MessageView
from rq.web.api.shapes import Limits, with_fields

_PLAIN: Mapping[fields.Kind, object] = {
    fields.Kind.TEXT: str | None,
    fields.Kind.WHOLE: int,
    fields.Kind.NUMBER: float | None,
    fields.Kind.SECONDS: float | str | None,
    fields.Kind.BYTES: int | str | None,
    fields.Kind.LIST: list[str],
    fields.Kind.JSON: object,
    fields.Kind.REASON: object,
}


def kind_of(row: fields.Row) -> object:
    """Return the type of a field, with its bounds and what is said of it."""
    plain = _PLAIN[row.kind]
    if row.kept is fields.Kept.LIMIT and row.kind is fields.Kind.WHOLE:
        plain = int | None
    about = row.about if row.kind is fields.Kind.WHOLE else row.said
    notes = (_bounds(row), about) if about else (_bounds(row),)
    return Annotated[(plain, *notes)]


def _bounds(row: fields.Row) -> Limits:
    is_number = row.kind in (fields.Kind.WHOLE, fields.Kind.NUMBER)
    least, most = (row.low, row.high) if is_number else (None, None)
    return Limits(least=least, most=most, longest=row.most)


@with_fields(
    {row.name: kind_of(row) for row in fields.ROWS if row.is_sent and row.in_api}
)
class NewMessage(TypedDict, total=False):
    """A message to be sent; a script also finds the fields that RQ does not know."""

    dest: Annotated[str, fields.BY_NAME["dest"].about]
    _key: Annotated[str, Limits(shortest=1, longest=200), "as Idempotency-Key"]


# ---- as it is shown


class HeldView(TypedDict):
    """Who holds a message, why, and since when."""

    by: str
    why: str
    since: Annotated[float, "epoch seconds"]


_OF_VIEW: Mapping[fields.Kind, object] = {
    fields.Kind.TEXT: str | None,
    fields.Kind.WHOLE: int,
    fields.Kind.NUMBER: float | None,
    fields.Kind.SECONDS: float,
    fields.Kind.BYTES: int,
    fields.Kind.FLAG: bool,
    fields.Kind.LIST: list[str],
    fields.Kind.JSON: object,
    fields.Kind.OBJECT: Mapping[str, object],
}


def _view_of(row: fields.Row) -> object:
    kind = HeldView if row.name == "held" else _OF_VIEW[row.kind]
    return Annotated[(kind, row.about)] if row.about else kind


@with_fields(
    {
        row.name: _view_of(row)
        for row in fields.ROWS
        if row.kept is not fields.Kept.NOT and row.name != "attachments"
    }
)
class Message(MessageView, total=False):
    """All that is known of a message; what else its sender has said stands beside this."""

    _silent: Annotated[str, "its folder says this: its owner does not answer"]
