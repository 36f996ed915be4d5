"""Reads what comes in as its shape says; each value that is wrong is named."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar, cast

from rq.errors import BadInput
from rq.web.api.shapes import LISTS, MAPPINGS, UNIONS, Limits, fields_of, is_shape
from rq.words.nesting import Json

T = TypeVar("T")
Reader: TypeAlias = Callable[[Json, str], object]  # the value, and what it is called

_WHOLE = re.compile(r"-?\d{1,15}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,9})?", re.ASCII)
_CUT = 60  # characters of a value in a sentence


def read(shape: type[T], value: Json) -> T:
    """Return a request that has a shape; BadInput names the field that is wrong."""
    return cast(T, reader(cast(object, shape))(value, ""))


def read_query(shape: type[T], query: Mapping[str, str | list[str]]) -> T:
    """As `read`, of the parameters of an address, which are texts."""
    kinds = {field.name: field.kind for field in fields_of(cast(type, shape))}
    values: dict[str, Json] = {}
    for name, text in query.items():
        if not isinstance(text, str):
            raise BadInput(f"{name:.60} is given twice")
        values[name] = _from_text(kinds.get(name), text)
    return read(shape, values)


@functools.cache
def reader(kind: object) -> Reader:
    """Return what reads a value of a type; TypeError for one that is no shape."""
    if is_shape(kind):
        return _object(cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _word(tuple(kind), kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in _BY_ORIGIN:
        return _BY_ORIGIN[origin](args)
    if kind in _PLAIN:
        return _PLAIN[kind]
    raise TypeError(f"{kind!r} is no shape")


def _object(shape: type) -> Reader:
    by_name = {field.name: (field, reader(field.kind)) for field in fields_of(shape)}
    needed = [field.name for field in fields_of(shape) if field.is_required]
    is_closed = is_dataclass(shape)

    def read_object(value: Json, called: str) -> object:
        if not isinstance(value, dict):
            raise _refused(called, "is not an object", value)
        for name in needed:
            if name not in value:
                raise BadInput(f"{_inner(called, name)} is missing")
        given: dict[str, object] = {}
        for name, part in value.items():
            if name in by_name:
                field, read_part = by_name[name]
                given[field.attribute] = read_part(part, _inner(called, name))
            elif is_closed:
                raise BadInput(_unknown(called, name, list(by_name)))
        return shape(**given) if is_closed else value

    return read_object


def _unknown(called: str, name: str, names: list[str]) -> str:
    there = f"there are {', '.join(names)}" if names else "there are none"
    return f"{_inner(called, f'{name:.60}')} is no field of this request; {there}"


def _inner(called: str, name: str) -> str:
    return f"{called}.{name}" if called else name


def _refused(called: str, what: str, value: Json) -> BadInput:
    return BadInput(f"{called or 'the request'} {what}: {value!r:.{_CUT}}")


def _list(args: Sequence[object]) -> Reader:
    read_part = reader(args[0])

    def read_list(value: Json, called: str) -> object:
        if not isinstance(value, list):
            raise _refused(called, "is not a list", value)
        return [read_part(part, f"{called}[{at}]") for at, part in enumerate(value)]

    return read_list


def _mapping(args: Sequence[object]) -> Reader:
    read_part = reader(args[1])

    def read_mapping(value: Json, called: str) -> object:
        if not isinstance(value, dict):
            raise _refused(called, "is not an object", value)
        return {
            name: read_part(part, _inner(called, f"{name:.60}"))
            for name, part in value.items()
        }

    return read_mapping


def _union(args: Sequence[object]) -> Reader:
    others = [reader(kind) for kind in args if kind is not type(None)]
    takes_none = len(others) < len(args)

    def read_union(value: Json, called: str) -> object:
        if value is None and takes_none:
            return None
        errors: list[BadInput] = []
        for read_other in others:
            try:
                return read_other(value, called)
            except BadInput as error:
                errors.append(error)
        raise errors[0]

    return read_union


def _literal(args: Sequence[object]) -> Reader:
    return _word([str(word) for word in args], str)


def _word(words: Sequence[str], make: Callable[[str], object]) -> Reader:
    listed = ", ".join(words)

    def read_word(value: Json, called: str) -> object:
        if isinstance(value, str) and value in words:
            return make(value)
        raise _refused(called, f"is none of {listed}", value)

    return read_word


def _annotated(args: Sequence[object]) -> Reader:
    limits = [note for note in args[1:] if isinstance(note, Limits)]
    is_read = all(limit.is_read for limit in limits)
    read_inner = reader(args[0]) if is_read else _as_it_is
    sized = _sized(args[0])

    def read_limited(value: Json, called: str) -> object:
        if isinstance(value, sized):
            for limit in limits:  # first: there may be a million items
                _check_size(limit, len(value), sized, called)
        result = read_inner(value, called)
        for limit in limits:
            _check(limit, result, called)
        return result

    return read_limited if limits else read_inner


def _as_it_is(value: Json, called: str) -> object:
    return value


def _sized(kind: object) -> type[list[Json]] | type[dict[str, Json]] | type[str]:
    """Return of which JSON a size is meant in the limits of a type."""
    origin = typing.get_origin(kind)
    if origin in LISTS:
        return list
    return dict if origin in MAPPINGS else str


def _check_size(limit: Limits, size: int, of: type, called: str) -> None:
    """BadInput when a text, a list or an object is longer or shorter than it may be."""
    of_what = "characters" if of is str else "items"
    if size < limit.shortest:
        raise BadInput(f"{called} has {size} {of_what}, at least {limit.shortest}")
    if limit.longest is not None and size > limit.longest:
        raise BadInput(f"{called} has {size} {of_what}, at most {limit.longest}")


def _check(limit: Limits, value: object, called: str) -> None:
    """BadInput when a value is beyond its limits; what may be absent has none then."""
    if isinstance(value, int | float):
        _check_number(limit, value, called)
    elif isinstance(value, str):
        _check_pattern(limit, value, called)


def _check_pattern(limit: Limits, value: str, called: str) -> None:
    if limit.pattern and not re.fullmatch(limit.pattern, value):
        raise BadInput(f"{called} does not match {limit.pattern}: {value!r:.{_CUT}}")


def _check_number(limit: Limits, value: float, called: str) -> None:
    if limit.least is not None and value < limit.least:
        raise BadInput(
            f"{called} is {value:.15g}, at least {limit.least:.15g} is taken"
        )
    if limit.most is not None and value > limit.most:
        raise BadInput(f"{called} is {value:.15g}, at most {limit.most:.15g} is taken")


def _bool(value: Json, called: str) -> object:
    if isinstance(value, bool):
        return value
    raise _refused(called, "is not true or false", value)


def _int(value: Json, called: str) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _refused(called, "is not a whole number", value)


def _float(value: Json, called: str) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _refused(called, "is not a number", value)


def _str(value: Json, called: str) -> object:
    if isinstance(value, str):
        return value
    raise _refused(called, "is not text", value)


def _none(value: Json, called: str) -> object:
    if value is None:
        return None
    raise _refused(called, "is not null", value)


def _any(value: Json, called: str) -> object:
    return value


_PLAIN: Mapping[object, Reader] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    type(None): _none,
    object: _any,
}
_BY_ORIGIN: Mapping[object, Callable[[Sequence[object]], Reader]] = {
    **dict.fromkeys(LISTS, _list),
    **dict.fromkeys(MAPPINGS, _mapping),
    **dict.fromkeys(UNIONS, _union),
    typing.Literal: _literal,
    typing.Annotated: _annotated,
}


def _from_text(kind: object, text: str) -> Json:
    """Return a parameter as its field wants it; the text itself if it is nothing else."""
    kinds = _plain_kinds(kind)
    if bool in kinds and text in ("true", "false"):
        return text == "true"
    if int in kinds and _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if float in kinds and _NUMBER.fullmatch(text) else text


def _plain_kinds(kind: object) -> list[object]:
    args, origin = typing.get_args(kind), typing.get_origin(kind)
    if origin is typing.Annotated:
        return _plain_kinds(args[0])
    return list(args) if origin in UNIONS else [kind]
