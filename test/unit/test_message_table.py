"""The table of the fields of a message, and that each of its readers knows each row."""

import dataclasses

import orjson
import pytest
from harness import documents
from harness.documents import REFERENCE, WORD
from harness.spool import NOW, a_message

from rq.cli import edit as cli_edit
from rq.cli import send
from rq.errors import BadMessage
from rq.message import fieldnames, limits
from rq.message import fields as checks
from rq.message.message import Message, from_disk
from rq.message.table import (
    FIELDS,
    FIXED,
    LATE,
    LIMITS,
    NOT_CLONED,
    NOT_DUPED,
    NOT_RELAYED,
    OWN,
    PARAMS,
    ROWS,
    STEERING,
    By,
    Form,
    Kept,
    Kind,
    Row,
)
from rq.queues.delivery import copies
from rq.relay.task import Task, travels
from rq.web.api.messages import NewMessage
from rq.web.api.shapes import fields_of
from rq.web.pages import forms

ID = "20270115.0800.00.000.1"
KEPT = [row for row in ROWS if row.kept is not Kept.NOT]
SENT = [row for row in ROWS if row.is_sent]
by_name = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
SAMPLES = {
    Kind.TEXT: "some text",
    Kind.WHOLE: 3,
    Kind.NUMBER: 1_800_000_000.0,
    Kind.SECONDS: 90.0,
    Kind.BYTES: 2**20,
    Kind.FLAG: True,
    Kind.JSON: {"a": 1},
    Kind.LIST: ["http://h/x"],
    Kind.REASON: "a freeze",
}
OBJECTS = {
    "after": ["t/20270115.0800.00.000.2"],
    "after_rule": "ended",
    "after_fail": "err",
    "after_end": {"end": "run", "by": "rule", "at": 1.0},
    "after_file": {"ids": 101, "sha256": "a"},
    "held": {"by": "ann", "why": "", "since": 1.0},
    "attachments": {"f": {"sha256": "a", "md5": "b", "size": 3}},
}


def sample(row):
    """Return what the field of a message may hold."""
    if row.name in OBJECTS:
        return OBJECTS[row.name]
    return 16 if row.name == "open_files" else SAMPLES[row.kind]


def full():
    """Return a message that has every field."""
    fields = {row.name: sample(row) for row in KEPT if row.name != "msg_id"}
    return from_disk(orjson.dumps({**fields, "colour": "red"}), ID, NOW)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": Kind.WHOLE},
        {"low": 3, "high": 2},
        {"option": "TEXT"},
        {"called": ("note",)},
        {"by": By.RQ, "form": Form("x")},
    ],
    ids=repr,
)
def test_a_row_that_cannot_be_meant_is_refused_at_once(wrong):
    with pytest.raises(AssertionError, match="x_note"):
        Row(name="x_note", **wrong)


def test_a_message_has_each_field_and_its_default():
    attributes = {field.name: field for field in dataclasses.fields(Message)}
    for row in ROWS:
        if row.kept not in (Kept.ALWAYS, Kept.SET):
            continue
        default = attributes[row.name].default
        if row.default is not None:
            assert default == row.default, row.name
        elif default is not dataclasses.MISSING:
            assert not default, row.name


def test_every_field_that_is_kept_comes_back_from_disk():
    message = full()
    written = orjson.loads(message.encode())
    kept = {row.name for row in KEPT} | {"colour"}
    assert written.keys() == kept - {"after"}  # which stands in its file then
    assert from_disk(message.encode(), ID, 0.0) == message.with_(after=())
    short = message.with_(after_file=None)
    assert orjson.loads(short.encode()).keys() == kept - {"after_file"}
    assert from_disk(short.encode(), ID, 0.0) == short


@pytest.mark.parametrize("row", SENT, ids=lambda row: row.name)
def test_a_field_that_a_client_says_is_taken_and_checked(row):
    checks.check_sent({row.name: sample(row)})
    wrong = {} if row.kind is not Kind.JSON else "\0"
    if row.kind not in (Kind.FLAG, Kind.REASON):
        with pytest.raises(BadMessage, match=row.name):
            a_message(**{row.name: wrong or object})


@pytest.mark.parametrize("name", sorted(LATE))
def test_what_a_sender_had_before_rq_knew_the_name_does_not_tear_a_message(name):
    message = from_disk(orjson.dumps({"dest": "q", name: {"mine": 1}}), ID, NOW)
    assert (name in message.extra) == (name in LIMITS)


@by_name
def test_a_wrong_name_leads_to_the_right_one(row):
    for other in row.called:
        with pytest.raises(BadMessage, match=f"say {row.name} \\("):
            fieldnames.check({other: 1})


def test_each_limit_is_checked_and_told_in_words():
    assert {*limits.CHECKS, "deadline"} == LIMITS
    given = {row.name: sample(row) for row in ROWS if row.name in LIMITS}
    assert len(limits.in_words(given)) == len(LIMITS)
    assert {name: checks.PARSERS[name](value) for name, value in given.items()} == given


def test_a_copy_gets_what_the_table_says():
    message = full()
    written = message.to_json().keys()
    for without in (NOT_CLONED, NOT_DUPED):
        assert copies._copied(message, without).keys() == written - without
    of_after = {"after", "after_rule", "after_fail"}
    assert OWN | of_after | {"count", "cloned_from"} == NOT_CLONED < NOT_DUPED


def test_what_belongs_to_this_host_is_not_relayed(tmp_path):
    message = full()
    told = travels(Task(None, tmp_path, message.with_(count=0), "http://h/q/relay/1"))
    assert message.to_json().keys() - told.keys() == (NOT_RELAYED - {"after_file"}) & {
        row.name for row in KEPT
    }


def test_the_command_line_has_its_options():
    parser = send._parser()
    options = {option for action in parser._actions for option in action.option_strings}
    for row in ROWS:
        if row.option or row.kept is Kept.PARAM:
            assert f"--{row.name.replace('_', '-')}" in options
    assert set(cli_edit._EDITABLE) == {
        *PARAMS,
        *(r.name for r in ROWS if r.option and not r.fixed),
    }


def test_the_form_has_its_fields_and_an_edit_those_that_may_change():
    shown = {one.key.removeprefix("mesg_") for one in forms.fields({}, {})}
    assert shown == {row.name for row in ROWS if row.form}
    assert set(forms.EDITED) == shown - FIXED - {"due"}


def test_the_api_checks_its_fields():
    known = {field.name for field in fields_of(NewMessage)}
    assert known == {row.name for row in SENT if row.in_api} | {"_key"}


def test_what_says_when_a_message_runs_is_no_row_of_a_transaction():
    of_after = {"after", "after_rule", "after_fail"}
    assert {"due", "priority", "hold"} | of_after == STEERING


DOCUMENTED = [row for row in ROWS if row.by in (By.SENDER, By.RQ, By.COPY)]


def in_words(row):
    if row.default is not None:
        return str(row.default)
    return row.absent


def documented():
    """Return the rows of the document: type, default, clone and dup by name."""
    section = documents.section(REFERENCE / "messages.md", "Fields")
    told = {}
    for cells in documents.rows(section, "field"):
        name = cells[0].replace(
            "`param1` … `param4`", " ".join(f"`{p}`" for p in PARAMS)
        )
        found = WORD.findall(name)
        kinds = cells[1].split(", ") if name == "`dup`, `dups`" else [cells[1]]
        for at, field in enumerate(found):
            told[field] = (kinds[at % len(kinds)], cells[2], *cells[4:6])
    return told


def test_the_document_has_each_field_with_its_type_default_and_copies():
    told = documented()
    assert told.keys() == {row.name for row in DOCUMENTED}
    for row in DOCUMENTED:
        kind, absent, clone, dup = told[row.name]
        assert kind.startswith(row.kind), row.name
        assert (absent, clone, dup) == (in_words(row), row.clone, row.dup), row.name


def test_no_field_is_told_twice():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert PARAMS == ("param1", "param2", "param3", "param4")
    assert FIELDS >= LIMITS | OWN
