"""Shapes: the same type refuses what is wrong and describes what is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NotRequired, TypedDict

import pytest

from rq.errors import BadInput
from rq.web.api.openapi import components, schema
from rq.web.api.readers import read, read_query
from rq.web.api.shapes import Limits


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part."""

    word: Literal["done", "err"]
    files: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A whole."""

    parts: Annotated[list[Part], Limits(shortest=1, longest=2)]
    seconds: Annotated[float, Limits(least=1, most=60), "how long"] = 5.0
    count: Annotated[int | None, Limits(least=1)] = None
    label: Annotated[str, Limits(longest=3, pattern="[a-z]*")] = ""
    more: object = None
    for_: bool = False


class Open(TypedDict):
    """It may hold more."""

    name: str
    size: NotRequired[int]


DONE = {"word": "done"}


def test_what_is_right_becomes_a_value():
    whole = read(Whole, {"parts": [DONE], "count": 3.0, "for": True, "more": [1]})
    assert whole == Whole(parts=[Part(word="done")], count=3, more=[1], for_=True)
    assert read(Open, {"name": "x", "own": 1}) == {"name": "x", "own": 1}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (5, "the request is not an object: 5"),
        ({}, "parts is missing"),
        ({"parts": {}}, "parts is not a list: {}"),
        ({"parts": []}, "parts has 0 items, at least 1"),
        ({"parts": [DONE] * 3}, "parts has 3 items, at most 2"),
        ({"parts": [5]}, "parts[0] is not an object: 5"),
        ({"parts": [DONE, {}]}, "parts[1].word is missing"),
        ({"parts": [{"word": "x"}]}, "parts[0].word is none of done, err: 'x'"),
        ({"parts": [{**DONE, "files": {"a": 1}}]}, "parts[0].files.a is not text: 1"),
        ({"parts": [DONE], "seconds": "5"}, "seconds is not a number: '5'"),
        ({"parts": [DONE], "seconds": True}, "seconds is not a number: True"),
        (
            {"parts": [DONE], "seconds": 61},
            "seconds is 61, at most 60 is taken",
        ),
        ({"parts": [DONE], "count": 1.5}, "count is not a whole number: 1.5"),
        ({"parts": [DONE], "count": 0}, "count is 0, at least 1 is taken"),
        ({"parts": [DONE], "label": "long"}, "label has 4 characters, at most 3"),
        ({"parts": [DONE], "label": "A"}, "label does not match [a-z]*: 'A'"),
        (
            {"parts": [DONE], "cuont": 1},
            "cuont is no field of this request; there are parts, seconds, count, label, "
            "more, for",
        ),
    ],
)
def test_what_is_wrong_is_named_in_a_sentence(value, sentence):
    with pytest.raises(BadInput) as caught:
        read(Whole, value)
    assert str(caught.value) == sentence


@dataclass(frozen=True, kw_only=True)
class Few:
    """A list and an object of few items."""

    words: Annotated[list[str], Limits(longest=1)] = field(default_factory=list)
    files: Annotated[Mapping[str, str], Limits(longest=1)] = field(default_factory=dict)


@pytest.mark.parametrize("value", [{"words": [0, 1]}, {"files": {"a": 0, "b": 1}}])
def test_how_many_there_are_is_looked_at_before_any_of_them_is(value):
    with pytest.raises(BadInput, match="has 2 items, at most 1"):
        read(Few, value)


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query."""

    limit: int = 1
    wait: float | None = None
    all_: bool = False
    state: str = ""


def test_a_query_is_read_by_its_shape():
    query = {"limit": "7", "wait": "1.5", "all": "true", "state": "12"}
    assert read_query(Query, query) == Query(limit=7, wait=1.5, all_=True, state="12")
    for wrong in ({"limit": "x"}, {"limit": ["1", "2"]}, {"all": "1"}, {"other": ""}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            read_query(Query, wrong)


def test_the_schema_says_the_same():
    described = components([Whole, Open])
    assert list(described) == ["Open", "Part", "Whole"]
    whole = described["Whole"]
    assert (whole["required"], whole["additionalProperties"]) == (["parts"], False)
    assert whole["properties"]["seconds"] == {
        "type": "number",
        "minimum": 1,
        "maximum": 60,
        "description": "how long",
        "default": 5.0,
    }
    assert "default" not in whole["properties"]["label"]
    assert whole["properties"]["parts"] == {
        "type": "array",
        "minItems": 1,
        "maxItems": 2,
        "items": {"$ref": "#/components/schemas/Part"},
    }
    assert whole["properties"]["label"]["pattern"] == "^(?:[a-z]*)$"
    assert described["Part"]["properties"]["word"]["enum"] == ["done", "err"]
    assert described["Open"]["required"] == ["name"]
    assert "additionalProperties" not in described["Open"]
    assert components([Few])["Few"]["properties"]["files"]["maxProperties"] == 1


def test_two_shapes_of_one_name_cannot_be_told_apart():
    other = dataclass(type("Part", (), {}))
    with pytest.raises(ValueError, match="two shapes are called Part"):
        components([Part, other])


def test_what_is_no_shape_is_seen_when_it_is_described_or_read():
    with pytest.raises(KeyError):
        schema(bytes)
    with pytest.raises(TypeError, match="no shape"):
        read(bytes, b"")
