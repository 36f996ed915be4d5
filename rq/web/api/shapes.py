"""Shapes of JSON: types that say what may come in, and what goes out.

A dataclass is closed: a name that it does not have is refused. A TypedDict is open: what
it does not know is kept. Their fields hold plain types, lists, mappings, words
(`Literal`, enums), other shapes, `object` for any JSON, and `Annotated[TYPE, Limits(…)]`;
a text in `Annotated` is the field's description.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass

from rq.words.nesting import Json

T = typing.TypeVar("T")
LISTS = (list, Sequence)
MAPPINGS = (dict, Mapping)
UNIONS = (typing.Union, types.UnionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a number, a text or a list may be; texts are measured in characters."""

    least: float | None = None
    most: float | None = None
    shortest: int = 0
    longest: int | None = None
    pattern: str = ""  # that a whole text matches; for Python and JavaScript alike
    is_read: bool = True  # False: what takes the value checks it, in its own words


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object: its name in JSON, and that of its attribute."""

    name: str
    attribute: str
    kind: object
    is_required: bool
    default: Json = None  # what stands for it when it is absent; None: nothing


def is_shape(kind: object) -> bool:
    """Return whether a type is an object with named fields."""
    return isinstance(kind, type) and (is_dataclass(kind) or typing.is_typeddict(kind))


_OF_TABLES: dict[
    type, Mapping[str, object]
] = {}  # fields that a shape has from a table


def with_fields(kinds: Mapping[str, object]) -> Callable[[type[T]], type[T]]:
    """Give a TypedDict fields that a table declares, with their types, before its own."""

    def give(shape: type[T]) -> type[T]:
        _OF_TABLES[shape] = kinds
        return shape

    return give


@functools.cache
def fields_of(shape: type) -> tuple[Field, ...]:
    """Return the fields of a dataclass or a TypedDict, in their order."""
    own = typing.get_type_hints(shape, include_extras=True)
    hints = {**_OF_TABLES.get(shape, {}), **own}
    if is_dataclass(shape):
        return tuple(_of_class(field, hints[field.name]) for field in fields(shape))
    needed = set(shape.__required_keys__)  # type: ignore[attr-defined]
    return tuple(_of_dict(name, kind, needed) for name, kind in hints.items())


def _of_class(field: dataclasses.Field[object], kind: object) -> Field:
    name, default = field.name.removesuffix("_"), field.default
    is_required = default is MISSING and field.default_factory is MISSING
    if isinstance(default, str | int | float) and default != "":
        return Field(name, field.name, kind, is_required, default)
    return Field(name, field.name, kind, is_required)


def _of_dict(name: str, kind: object, needed: set[str]) -> Field:
    if typing.get_origin(kind) is typing.NotRequired:
        return Field(name, name, typing.get_args(kind)[0], False)
    return Field(name, name, kind, name in needed)
