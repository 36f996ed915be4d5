"""Shapes as JSON Schema (2020-12), the dialect of OpenAPI 3.1."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from typing import cast

from rq.message import JsonObject
from rq.web.api.shapes import (
    LISTS,
    MAPPINGS,
    UNIONS,
    Field,
    Limits,
    fields_of,
    is_shape,
)
from rq.words.nesting import Json

COMPONENTS = "#/components/schemas/"


def schema(kind: object) -> JsonObject:
    """Return the schema of a type; that of a shape refers to its component."""
    if is_shape(kind):
        return {"$ref": COMPONENTS + cast(type, kind).__name__}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _words(tuple(kind))
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in _BY_ORIGIN:
        return _BY_ORIGIN[origin](args)
    return _PLAIN[kind]


def schema_of(field: Field) -> JsonObject:
    """Return the schema of a field, with what stands for it when it is absent."""
    default = {} if field.default is None else {"default": field.default}
    return {**schema(field.kind), **default}


def components(kinds: Iterable[object]) -> dict[str, JsonObject]:
    """Return the schemas of all shapes in these types, by their names. ValueError when
    two have the same name."""
    shapes: dict[str, type] = {}
    for kind in kinds:
        for shape in _shapes_in(kind):
            if shapes.setdefault(shape.__name__, shape) is not shape:
                raise ValueError(f"two shapes are called {shape.__name__}")
    return {name: _object(shapes[name]) for name in sorted(shapes)}


def _shapes_in(kind: object) -> Iterator[type]:
    """Give the shapes that a type holds, and those that these hold."""
    if is_shape(kind):
        shape = cast(type, kind)
        yield shape
        for field in fields_of(shape):
            yield from _shapes_in(field.kind)
    for inner in typing.get_args(kind):
        yield from _shapes_in(inner)


def _object(shape: type) -> JsonObject:
    fields = fields_of(shape)
    needed = [field.name for field in fields if field.is_required]
    return {
        "type": "object",
        "description": (shape.__doc__ or "")
        .partition("\n\n")[0]
        .replace("\n    ", " "),
        "properties": {field.name: schema_of(field) for field in fields},
        **({"required": needed} if needed else {}),
        **({"additionalProperties": False} if is_dataclass(shape) else {}),
    }


def _words(words: Sequence[object]) -> JsonObject:
    return {"type": "string", "enum": [str(word) for word in words]}


def _list(args: Sequence[object]) -> JsonObject:
    return {"type": "array", "items": schema(args[0])}


def _mapping(args: Sequence[object]) -> JsonObject:
    return {"type": "object", "additionalProperties": schema(args[1])}


def _union(args: Sequence[object]) -> JsonObject:
    return {"anyOf": [schema(kind) for kind in args]}


def _annotated(args: Sequence[object]) -> JsonObject:
    inner = schema(args[0])
    limits: dict[str, Json] = {}
    for note in args[1:]:
        if isinstance(note, Limits):
            limits |= _limits(note, inner)
        elif isinstance(note, str):
            limits["description"] = note
    return {**inner, **limits}


def _limits(limit: Limits, inner: JsonObject) -> dict[str, Json]:
    sized = _SIZED.get(str(inner.get("type")), "Length")
    words: dict[str, Json] = {
        "minimum": limit.least,
        "maximum": limit.most,
        f"min{sized}": limit.shortest or None,
        f"max{sized}": limit.longest,
        "pattern": f"^(?:{limit.pattern})$" if limit.pattern else None,
    }
    return {word: value for word, value in words.items() if value is not None}


_SIZED = {"array": "Items", "object": "Properties"}
_PLAIN: Mapping[object, JsonObject] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
    object: {},
}
_BY_ORIGIN: Mapping[object, Callable[[Sequence[object]], JsonObject]] = {
    **dict.fromkeys(LISTS, _list),
    **dict.fromkeys(MAPPINGS, _mapping),
    **dict.fromkeys(UNIONS, _union),
    typing.Literal: _words,
    typing.Annotated: _annotated,
}
