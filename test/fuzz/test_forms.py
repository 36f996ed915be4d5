"""Forms and ranges of HTTP: read as they were sent, or refused as a client's fault."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from urllib.parse import urlencode

import falcon.asgi
import pytest
from falcon.testing import TestClient
from harness.hostile_values import mangled, odd_text
from hypothesis import example, given
from hypothesis import strategies as st

from rq.errors import BadInput
from rq.web import forms
from rq.web.downloads import parse_range

REFUSED = {400, 411, 413, 415}
URLENCODED = "application/x-www-form-urlencoded"
MARK = "mark"
MULTIPART = f"multipart/form-data; boundary={MARK}"

plain = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.one_of(
    st.sampled_from(["mesg", "mesg[dest]", "mesg[a][]", "_method", "mesg[", "mesg[]"]),
    st.text("abc[]_.", min_size=1, max_size=8),
)
fields = st.lists(st.tuples(names, plain), max_size=6)


@pytest.fixture(scope="module")
def client():
    async def take(req, resp):
        form = await forms.read(req)
        resp.media = {"fields": form.fields, "nested": form.nested("mesg")}

    app = falcon.asgi.App()
    app.add_route("/", SimpleNamespace(on_post=take))
    return TestClient(app)


def post(client, kind, body, **headers):
    return client.simulate_post(
        "/", body=body, headers={"Content-Type": kind, **headers}
    )


def multipart(fields):
    head = f'--{MARK}\r\nContent-Disposition: form-data; name="'
    parts = [f'{head}{name}"\r\n\r\n{value}\r\n' for name, value in fields]
    return ("".join(parts) + f"--{MARK}--\r\n").encode()


def without_mark(fields):
    return not any(MARK in value for _, value in fields)


@given(fields)
def test_a_form_is_read_as_it_was_sent_either_way(client, fields):
    first = post(client, URLENCODED, urlencode(fields).encode())
    second = post(client, MULTIPART, multipart(fields))
    wanted = [list(one) for one in fields]
    assert first.json["fields"] == wanted
    assert second.json == first.json


@example(b"mesg[a]=1&mesg[a][]=2")
@given(st.one_of(st.binary(max_size=120), mangled(b"a=1&mesg[b][]=%C3%A9&c[=+%")))
def test_any_urlencoded_bytes_are_a_form_or_refused(client, body):
    assert post(client, URLENCODED, body).status_code in {200, *REFUSED}


GOOD = multipart([("mesg[dest]", "q"), ("mesg[param1]", "x" * 40), ("_method", "prep")])


@given(st.one_of(st.binary(max_size=120), mangled(GOOD)))
@example(GOOD.replace(b'"_method"', b'"\xbd"'))
@example(GOOD.replace(b'name="_method"', b"name=x; filename*=bogus''x%ff"))
def test_any_multipart_bytes_are_a_form_or_refused(client, body):
    answer = post(client, MULTIPART, body)
    assert answer.status_code in {200, *REFUSED}


@given(
    odd_text.filter(lambda text: text.isascii() and text.isprintable()),
    st.sampled_from([GOOD, b"", b"a=1"]),
)
def test_any_content_type_is_a_form_or_refused(client, kind, body):
    for one in (kind, f"multipart/form-data; boundary={kind}", f"{URLENCODED};{kind}"):
        assert post(client, one, body).status_code in {200, *REFUSED}


# ---- ranges

SIZES = st.one_of(st.integers(0, 50), st.sampled_from([2**31, 2**63]))


@given(
    st.one_of(
        odd_text, st.text("bytes=-,0123456789 ", max_size=25), st.just("bytes=0-")
    ),
    SIZES,
)
def test_any_range_is_within_the_file_or_all_or_refused(header, size):
    with contextlib.suppress(BadInput):
        part = parse_range(header, size)
        assert part is None or 0 <= part[0] < part[1] <= size


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 50))
def test_a_range_means_those_bytes(first, last, size):
    data = bytes(range(size))
    for header, wanted in (
        (f"bytes={first}-{last}", data[first : last + 1]),
        (f"bytes={first}-", data[first:]),
        (f"bytes=-{last}", data[-last:] if last else b""),
    ):
        try:
            part = parse_range(header, size)
        except BadInput:
            assert wanted == b""
        else:
            backward = header == f"bytes={first}-{last}" and last < first
            assert backward if part is None else data[slice(*part)] == wanted
