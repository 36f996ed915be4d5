"""The OpenAPI 3.1 document of the rows."""

from __future__ import annotations

import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict, cast

import rq
from rq.kinds import HEADER
from rq.message.fields import JsonObject
from rq.web.api.examples import EXAMPLES
from rq.web.api.operation import OF_ALL, PREFIX, Header, Media, Operation
from rq.web.api.shapes import (
    LISTS,
    MAPPINGS,
    UNIONS,
    Field,
    Limits,
    fields_of,
    is_shape,
)
from rq.web.routes import Own
from rq.web.statuses import KIND_OF_HTTP, KINDS, STATUS_OF
from rq.words.nesting import Json

if TYPE_CHECKING:
    _Kind = str
else:
    _Kind = typing.Literal[KINDS]

# What the door of the web answers by itself.
_OF_DOOR = {
    400: "The target or the body cannot be read.",
    404: "There is nothing at this address.",
    405: "The address does not answer this method.",
    414: "The address is longer than 8,190 bytes.",
}
_OF_BODIES = {
    411: "The request lacks its Content-Length.",
    413: "The request is too large.",
    415: "The body is of a type that is not read here.",
}
PATH_FIELDS = {
    "name": "the name of a queue",
    "msg_id": "the short id of a message",
    "txn": "the id of a transaction",
    "bulk": "the id of a request that changes many messages",
    "token": "the token of a lease",
    "timer": "the name of a timer",
    "file": "the name of a file",
    "flow": "the id of a flow: of the message of the queue `flow` that sends it",
}


class Problem(TypedDict):
    """Why a request was not done (RFC 9457)."""

    type: Annotated[str, "urn:rq:KIND"]
    kind: Annotated[_Kind, "programs go by it"]
    title: str
    status: int
    detail: Annotated[str, "a sentence for people"]
    msg_id: NotRequired[Annotated[str, "of not_unique: the message that stands"]]
    have: NotRequired[Annotated[int, "of wrong_offset: bytes that are here"]]


def document(rows: Sequence[Operation], prefix: str) -> JsonObject:
    """Return the document of all rows; `prefix` is the relative root."""
    paths: dict[str, dict[str, Json]] = defaultdict(dict)
    for row in rows:
        paths[row.path][row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "RQ",
            "version": rq.__version__,
            "description": "A reliable queue whose storage is directories and a journal.",
        },
        "servers": [{"url": prefix + PREFIX}],
        "security": [{}, {"token": []}, {"password": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": components([Problem, *_kinds_of(rows)]),
            "securitySchemes": _SCHEMES,
        },
    }


_SCHEMES: JsonObject = {
    "token": {"type": "http", "scheme": "bearer"},
    "password": {"type": "http", "scheme": "basic"},
    "session": {"type": "apiKey", "in": "cookie", "name": "rq_login_PORT"},
}


def _kinds_of(rows: Iterable[Operation]) -> Iterable[object]:
    for row in rows:
        yield row.reply
        if row.request is not None and not row.asks_by_query:
            yield row.request
        if row.request is not None and row.asks_by_query:
            yield from (field.kind for field in fields_of(row.request))


def _operation(row: Operation) -> JsonObject:
    return {
        "operationId": row.operation_id,
        "summary": row.summary,
        "x-rq-role": str(row.role),
        **({} if row.own is Own.NOTHING else {"x-rq-own": row.own.value}),
        **({"deprecated": True} if row.deprecated else {}),
        "parameters": [*_path(row), *_query(row), *_headers(row)],
        **({"requestBody": _body(row)} if row.has_body else {}),
        "responses": _responses(row),
    }


def _path(row: Operation) -> list[JsonObject]:
    return [
        _parameter("path", name, PATH_FIELDS[name], {"type": "string", "minLength": 1})
        for name in row.path_fields
    ]


def _query(row: Operation) -> list[JsonObject]:
    if row.request is None or not row.asks_by_query:
        return []
    return [
        {
            "in": "query",
            "name": field.name,
            "required": field.is_required,
            "schema": schema_of(field),
        }
        for field in fields_of(row.request)
    ]


def _headers(row: Operation) -> list[JsonObject]:
    return [
        {**_parameter("header", header.name, header.about), "required": False}
        for header in row.headers
    ]


def _parameter(
    place: str, name: str, about: str, kind: JsonObject | None = None
) -> JsonObject:
    return {
        "in": place,
        "name": name,
        "required": True,
        "description": about,
        "schema": kind or {"type": "string"},
    }


def _body(row: Operation) -> JsonObject:
    content: dict[str, dict[str, Json]] = {}
    for media in row.takes:
        is_json = media is Media.JSON and row.request is not None
        content[str(media)] = {"schema": schema(row.request) if is_json else _BYTES}
        if is_json and row.operation_id in EXAMPLES:
            content[str(media)] |= {"example": EXAMPLES[row.operation_id]}
    needed = Media.JSON not in row.takes or _has_needs(row.request)
    return {"required": needed, "content": content}


# Of what is no JSON; generators of clients know files by it.
_BYTES: JsonObject = {"type": "string", "format": "binary"}


def _has_needs(shape: type | None) -> bool:
    return shape is not None and any(field.is_required for field in fields_of(shape))


def _responses(row: Operation) -> JsonObject:
    described = _BYTES if row.reply is object else schema(row.reply)
    content: dict[str, Json] = {str(row.gives): {"schema": described}}
    if row.also_gives is not None:
        content[str(row.also_gives)] = {"schema": _BYTES}
    good: dict[str, Json] = {"description": "It is done.", "content": content}
    if row.reply_headers:
        good["headers"] = {header.name: _header(header) for header in row.reply_headers}
    responses: dict[str, Json] = {str(status): good for status in row.statuses}
    if row.ranges:
        part = "The part that Range asks for; Content-Range says which it is."
        responses["206"] = {**good, "description": part}
        responses["416"] = {"description": "The file has no such bytes."}
    if any(header.name == "ETag" for header in row.reply_headers):
        responses["304"] = {"description": "It is as If-None-Match says."}
    return {**responses, **_refusals(row)}


def _header(header: Header) -> JsonObject:
    return {"description": header.about, "schema": {"type": "string"}}


def _refusals(row: Operation) -> JsonObject:
    kinds: dict[int, list[str]] = defaultdict(list)
    for kind in dict.fromkeys((*OF_ALL, *row.failures)):
        kinds[STATUS_OF[kind]].append(str(kind))
    texts = {**_OF_DOOR, **(_OF_BODIES if row.method != "GET" else {})}
    for status in texts.keys() & KIND_OF_HTTP.keys():
        if KIND_OF_HTTP[status] not in kinds[status]:
            kinds[status].append(KIND_OF_HTTP[status])
    return {
        str(status): _refusal(texts.get(status, ""), status, kinds.get(status, []))
        for status in sorted({*kinds, *texts})
    }


def _refusal(text: str, status: int, kinds: Sequence[str]) -> JsonObject:
    """Return how a refusal answers; X-RQ-Kind names its kind."""
    words: JsonObject = {"schema": _words(kinds)}
    return {
        "description": text or f"{HTTPStatus(status).phrase}.",
        **({"headers": {HEADER: words}} if kinds else {}),
        "content": {
            "application/problem+json": {"schema": {"$ref": f"{COMPONENTS}Problem"}}
        },
    }


# ---- shapes as JSON Schema (2020-12), the dialect of OpenAPI 3.1


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
