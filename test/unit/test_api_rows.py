"""The rows of `/api/v1`: whole, told in the reference, and described by the document."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from harness import documents

from rq.access.roles import Role
from rq.config.settings import RootConfig
from rq.kinds import Kind
from rq.layout import Root
from rq.web import app, site
from rq.web.api import openapi, readers
from rq.web.api.examples import EXAMPLES
from rq.web.api.operation import PREFIX, Media, Operation
from rq.web.api.table import ROWS, install
from rq.web.routes import Own, Routes

SITE = site.make(Root(Path("/nowhere")), RootConfig(), b"x" * 32)
GOOD = ROWS[1]


def test_the_reference_tells_of_each_operation():
    page = documents.REFERENCE / "api.md"
    table = documents.rows(documents.section(page, "Operations"), "operation")
    told = {row[0].strip("`"): (row[1], row[2]) for row in table}
    assert told == {
        row.operation_id: (f"{row.method} `{row.path}`", _roles(row)) for row in ROWS
    }


def _roles(row):
    return f"{row.role}{'' if row.own is Own.NOTHING else ', sender'}"


@pytest.mark.parametrize(
    "change",
    [
        {"operation_id": ""},
        {"operation_id": "list_queues"},
        {"method": "TRACE"},
        {"path": "queues"},
        {"summary": ""},
        {"request": int},
        {"failures": (), "shared": False},
    ],
    ids=str,
)
def test_a_row_that_leaves_something_out_cannot_be_installed(change):
    with pytest.raises(ValueError, match="lacks a right"):
        replace(GOOD, **change)


def test_a_row_names_everything():
    given = {field.name: getattr(GOOD, field.name) for field in fields(Operation)}
    for name in ("operation_id", "role", "request", "reply", "failures", "handler"):
        with pytest.raises(TypeError, match=name):
            Operation(**{key: value for key, value in given.items() if key != name})


def test_two_rows_of_one_name_or_one_address_cannot_be_installed():
    with pytest.raises(ValueError, match="two rows are called listQueues"):
        install(Routes(), SITE, [GOOD, replace(GOOD, path="/other")])
    with pytest.raises(ValueError, match="two handlers for GET"):
        install(Routes(), SITE, [GOOD, replace(GOOD, operation_id="other")])


def test_every_route_below_the_prefix_is_a_row():
    table = app.table(SITE)
    routes = {
        (method, path.removeprefix(PREFIX)): table.right(path, method).role
        for path in table.paths
        if path.startswith(PREFIX)
        for method in table.methods(path)
        if method != "HEAD"
    }
    assert routes == {(row.method, row.path): row.role for row in ROWS}


def test_the_document_describes_each_row():
    paths = openapi.document(ROWS, "/rq")["paths"]
    for row in ROWS:
        described = paths[row.path][row.method.lower()]
        assert described["operationId"] == row.operation_id
        assert str(row.status) in described["responses"]
        here = [
            part["name"] for part in described["parameters"] if part["in"] == "path"
        ]
        assert here == row.path_fields
    assert sum(map(len, paths.values())) == len(ROWS)


def test_each_request_of_json_has_an_example_of_its_shape():
    takes_json = {
        row.operation_id: row.request
        for row in ROWS
        if row.has_body and row.request is not None and Media.JSON in row.takes
    }
    assert takes_json.keys() == EXAMPLES.keys()
    for name, shape in takes_json.items():
        assert readers.read(shape, EXAMPLES[name]) is not None


def test_a_refusal_is_described_by_the_status_of_its_kind():
    row = replace(GOOD, failures=(Kind.WRONG_STATE, Kind.DOWN), role=Role.VIEWER)
    answers = openapi.document([row], "")["paths"][row.path]["get"]["responses"]
    assert answers["409"]["headers"]["X-RQ-Kind"]["schema"]["enum"] == ["wrong_state"]
    assert answers["405"]["headers"]["X-RQ-Kind"]["schema"]["enum"] == [
        "no_such_method"
    ]
    assert "503" in answers
    assert "422" not in answers
