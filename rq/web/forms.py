"""The fields of a POST, urlencoded or multipart alike, in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import parse_qsl

import falcon
from falcon.asgi import Request
from falcon.asgi.multipart import BodyPart, MultipartForm
from falcon.media.multipart import MultipartParseError

REQUEST = 2 * 1024 * 1024 - 64 * 1024  # bytes: what an owner takes in one request
LIMIT = 4 * 1024 * 1024  # bytes: a message of a megabyte, percent-encoded
_MOST_FIELDS = 1000
_SMALL = 64 * 1024  # bytes; more take a thread, for each escape costs a step of Python
_URLENCODED = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"

_decoding = ThreadPoolExecutor(1, "rq-form")


@dataclass(frozen=True, slots=True)
class Form:
    """Names and texts, in the order they came."""

    fields: list[tuple[str, str]]

    def get(self, name: str, default: str = "") -> str:
        """Return the first value of a field."""
        return next((value for key, value in self.fields if key == name), default)

    def has(self, name: str) -> bool:
        return any(key == name for key, _ in self.fields)

    def nested(self, name: str) -> dict[str, str | list[str]]:
        """Return `name[a]=1&name[b][]=2` as {"a": "1", "b": ["2"]}."""
        values: dict[str, str | list[str]] = {}
        for key, value in self.fields:
            if not key.startswith(f"{name}[") or not key.endswith("]"):
                continue
            inner = key[len(name) + 1 :]
            if inner.endswith("][]"):
                several = values.setdefault(inner.removesuffix("][]"), [])
                if isinstance(several, list):  # else the name came without [], too
                    several.append(value)
            else:
                values.setdefault(inner.removesuffix("]"), value)
        return values


async def read(req: Request) -> Form:
    """Return the fields of a request; 413 and 415 for what is no form."""
    form = await _read(req)
    req.context.form = form  # the audit log holds some of its fields
    return form


async def _read(req: Request) -> Form:
    kind = (req.content_type or "").partition(";")[0].strip().lower()
    if (req.content_length or 0) > LIMIT:
        raise _too_large()
    if kind == _MULTIPART:
        return await _multipart(req)
    if kind not in (_URLENCODED, ""):
        raise not_a_form(req)
    if req.get_header("Transfer-Encoding"):
        raise falcon.HTTPLengthRequired(
            description="A form needs its Content-Length, so that half of it is none."
        )
    data = await req.stream.read()
    if len(data) < (req.content_length or 0):
        raise falcon.HTTPBadRequest(
            description="The form is shorter than its Content-Length says."
        )
    if data and not kind:
        raise not_a_form(req)
    if len(data) < _SMALL:
        return Form(_urlencoded(data))
    loop = asyncio.get_running_loop()
    return Form(await loop.run_in_executor(_decoding, _urlencoded, data))


def method(form: Form, methods: Collection[str]) -> str:
    """Return the `_method` of a form; 400 when it is none of `methods`."""
    chosen = form.get("_method")
    if chosen not in methods:
        *names, last = methods
        which = f"none of {', '.join(names)} and {last}" if names else f"not {last}"
        raise falcon.HTTPBadRequest(description=f"_method is {which}")
    return chosen


def not_a_form(
    req: Request, wanted: str = f"{_URLENCODED} or {_MULTIPART}"
) -> falcon.HTTPError:
    return falcon.HTTPUnsupportedMediaType(
        description=f"{req.content_type or 'No Content-Type'} is not read here; send "
        f"{wanted}."
    )


def _too_large() -> falcon.HTTPError:
    return falcon.HTTPContentTooLarge(
        description=f"A form is at most {LIMIT} bytes; send large data as attachments."
    )


def _urlencoded(data: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            data.decode("utf-8", "replace"),
            keep_blank_values=True,
            errors="replace",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError as error:
        raise falcon.HTTPBadRequest(description=f"not a form: {error}") from None


async def _multipart(req: Request) -> Form:
    fields = []
    left = LIMIT
    try:
        async for part in parts(req):
            data = await part.stream.read(left + 1)
            left -= len(data)
            if left < 0:
                raise _too_large()
            fields.append((part.name or "", data.decode("utf-8", "replace")))
    except MultipartParseError as error:
        raise unreadable(error) from None
    return Form(fields)


def unreadable(error: MultipartParseError) -> falcon.HTTPError:
    return falcon.HTTPBadRequest(
        description=f"The multipart form cannot be read: {error.description}"
    )


async def parts(req: Request) -> AsyncIterator[BodyPart]:
    """Give the parts of a multipart body, to be read one after the other."""
    kind = (req.content_type or "").partition(";")[0].strip().lower()
    if kind != _MULTIPART:
        raise not_a_form(req, _MULTIPART)
    form: MultipartForm = await req.get_media()
    async for part in form:
        _check_names(part)
        yield part


def _check_names(part: BodyPart) -> None:
    """Decode the names of a part now, where it is known whose fault it is."""
    try:
        _ = part.name, part.filename
    except (LookupError, ValueError) as error:
        raise MultipartParseError(
            description=f"a part's Content-Disposition cannot be read: {error}"
        ) from None
