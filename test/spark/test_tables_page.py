"""/tables: what jobs have written, to who may ask of their queues."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from harness import delta_showcase
from harness.delta_showcase import HITS
from harness.waiting import wait_until
from harness.web_server import web_alone

from rq import tables
from rq.checks import Batch, Check, Checks, Kind
from rq.cli import spark
from rq.config import files, passwords
from rq.errors import Busy
from rq.layout import Root
from rq.tables import Name
from rq.web import table_reader

pytestmark = pytest.mark.process

ID = "20260101.0101.01.001.1795254001000000001"
OTHER = Name("billing", "invoices")
USERS = {
    "ann": passwords.make("all of it"),
    "vic": {
        "password": passwords.make("reports alone"),
        "role": "viewer",
        "queues": ["reports", "quiet"],
    },
}


def basic(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


ANN, VIC = basic("ann", "all of it"), basic("vic", "reports alone")


def page_text(web, path, who=ANN):
    return web.page(path, Authorization=who)


def twin(web, path, who=ANN, kind="application/json"):
    return web.get(path, Authorization=who, Accept=kind)


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """Give the web of a root in which two queues have written tables."""
    root = Root(tmp_path_factory.mktemp("root"))
    for name in ("reports", "billing", "quiet", "none"):
        files.make_queue(root.queue(name), {"script": "/bin/true"}, {})
    delta_showcase.write_week(root, [ID])
    delta_showcase.write_week(root, [ID], OTHER)
    delta_showcase.hold(root, "billing", ID, "hits: <b>n</b> is long in the table")
    with web_alone(root.path, basic_auth={"users": USERS}) as made:
        made.root = root
        yield made


def test_the_list_shows_rows_bytes_and_what_is_held(web):
    told = twin(web, "/tables.json").json
    assert [t["table"] for t in told["tables"]] == [
        "billing/invoices",
        "billing/invoices__rejected",
        "reports/hits",
        "reports/hits__rejected",
    ]
    hits = told["tables"][2]
    assert (hits["version"], hits["files"], hits["why"]) == (27, 28, "")
    assert hits["rows"] == sum(step["rows"] for step in hits["versions"])
    assert [held["messages"] for held in told["held"]] == [[ID]]
    text = page_text(web, "/tables")
    for said in ("hits", f"{hits['rows']:,}", "n</b> is long in the table"):
        assert said in text
    assert "<b>n</b>" not in twin(web, "/tables", kind="text/html").text
    only = twin(web, "/tables.json?queue=reports").json["tables"]
    assert {t["table"].split("/")[0] for t in only} == {"reports"}
    assert twin(web, "/tables.json?queue=*").json["tables"] == []


def test_a_table_shows_its_versions_with_links_to_the_messages(web):
    told = twin(web, "/tables/reports/hits.json").json
    assert told["table"]["columns"][0] == {
        "column": "day",
        "type": "string",
        "by": True,
    }
    assert told["rejected"]["table"] == "reports/hits__rejected"
    assert told["held"] == []
    text = twin(web, "/tables/reports/hits", kind="text/html").text
    for said in (f'href="/q/reports/{ID}"', "rejected", "bars-bad", "table restore"):
        assert said in text
    rejected = twin(web, "/tables/reports/hits__rejected", kind="text/html").text
    assert 'What did not fit <a href="/tables/reports/hits"' in rejected
    for path in ("/tables/reports/none", "/tables/none/hits", "/tables/reports/h*"):
        assert twin(web, path).status == 404, path


def test_a_merge_counts_the_rows_that_it_has_changed_or_brought(web):
    place = web.root.spark / "tables" / "quiet" / "merged"
    write_deltalake(place, pa.table({"n": [1, 2, 3], "text": ["a"] * 3}))
    rows = pa.table({"n": [3, 4], "text": ["b"] * 2})
    merging = DeltaTable(place).merge(rows, "t.n = s.n", "s", "t")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()
    newest = twin(web, "/tables/quiet/merged.json").json["table"]["versions"][0]
    assert (newest["operation"], newest["rows"]) == ("MERGE", 2)


@pytest.mark.parametrize("ids", [5, [5, {"a": 1}], "<b>", ["<b>" * 999]])
def test_what_other_programs_say_in_a_log_is_shown_and_breaks_no_page(web, ids):
    place = web.root.spark / "tables" / "quiet" / "odd"
    about = {"rq_ids": ids, "rq_queue": {"a": 1}, "rq_messages": "many"}
    write_deltalake(
        place,
        pa.table({"n": [1]}),
        mode="append",
        commit_properties=CommitProperties(custom_metadata=about),
    )
    wait_until(lambda: is_seen(web, "quiet/odd"))
    text = twin(web, "/tables/quiet/odd", kind="text/html").text
    assert "<b>" not in text
    assert "hits" in page_text(web, "/tables")


@pytest.mark.parametrize("said", [10**18, -5, 86_400_000, None])
def test_a_time_that_cannot_be_breaks_no_page(web, capsys, said):
    place = web.root.spark / "tables" / "quiet" / f"clock{said}".replace("-", "_")
    write_deltalake(place, pa.table({"n": [1]}))
    log = place / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for info in (line["commitInfo"] for line in lines if "commitInfo" in line):
        del info["timestamp"]
        info.update({} if said is None else {"timestamp": said})
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    write_deltalake(place, pa.table({"n": [2]}), mode="append")
    wait_until(lambda: is_seen(web, f"quiet/{place.name}"))
    newest, oldest = twin(web, f"/tables/quiet/{place.name}.json").json["table"][
        "versions"
    ]
    assert newest["time"] > 0
    assert oldest["time"] == (86_400 if said == 86_400_000 else None)
    text = twin(web, f"/tables/quiet/{place.name}", kind="text/html").text
    assert "2 rows" in text or "1 rows" in text
    assert place.name in page_text(web, "/tables")
    assert spark.spark(web.root, ["table", "show", f"quiet/{place.name}"]) == 0
    assert spark.spark(web.root, ["table", "ls", "quiet"]) == 0
    assert place.name in capsys.readouterr().out


def test_what_takes_too_long_is_not_asked_again_by_each_page(tmp_path, monkeypatch):
    asked = tmp_path / "asked"
    code = f"import time; open({str(asked)!r}, 'a').write('x'); time.sleep(60)"
    slow = (sys.executable, "-c", code)
    monkeypatch.setattr(table_reader, "_PROGRAM", slow)
    monkeypatch.setattr(table_reader, "_PATIENCE", 1.0)
    reader = table_reader.Reader(Root(tmp_path))
    for _ in range(3):
        with pytest.raises(Busy, match="it took more than"):
            asyncio.run(reader.of([HITS, OTHER]))
    with pytest.raises(Busy):  # one of them may be read
        asyncio.run(reader.of([HITS]))
    assert len(asked.read_text()) == 2
    monkeypatch.setattr(table_reader, "_REST", 0.0)
    with pytest.raises(Busy):
        asyncio.run(reader.of([HITS, OTHER]))
    assert len(asked.read_text()) == 3


def test_what_was_expected_is_told_and_a_damaged_file_of_it_breaks_no_page(web):
    told = twin(web, "/tables/billing/invoices.json").json["checks"]
    assert {check["kind"] for check in told} == {"expect", "contract"}
    assert {check["holds"] for check in told} == {True, False}
    text = twin(web, "/tables/billing/invoices", kind="text/html").text
    assert "What was expected" in text
    assert "rows break the contract, at most 10% may" in text
    assert twin(web, "/tables/billing/invoices__rejected.json").json["checks"] == []
    file = web.root.spark / "checks" / "billing.sqlite"
    file.write_bytes(b"no" * 5000)
    assert twin(web, "/tables/billing/invoices.json").json["checks"] == []
    assert "What was expected" not in page_text(web, "/tables/billing/invoices")


def test_a_day_that_was_made_again_says_so(web):
    place = web.root.spark / "tables" / "quiet" / "again"
    about = {"rq_day": "2026-11-02", "rq_backfill": "20261128.214100.<i>"}
    properties = CommitProperties(custom_metadata=about)
    write_deltalake(place, pa.table({"n": [1]}), commit_properties=properties)
    wait_until(lambda: is_seen(web, "quiet/again"))
    text = twin(web, "/tables/quiet/again", kind="text/html").text
    assert "2026-11-02 made again" in text
    assert "backfill 20261128.214100.&lt;i&gt;" in text


def is_seen(web, table):
    """Whether a page knows the last version of a table, or why it does not."""
    facts = twin(web, f"/tables/{table}.json").json["table"]
    last = DeltaTable(web.root.spark / "tables" / table).version()
    return facts["why"] or facts["version"] == last


def test_a_table_in_a_store_says_where_it_is_and_a_damaged_note_breaks_no_page(web):
    note = tables.place(web.root, Name("quiet", "away")) / tables.STORED
    note.parent.mkdir(parents=True)
    end = "?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    for data, said in (
        (
            {"where": f"s3://lake/<b>/away{end}"},
            "<code>s3://lake/&lt;b&gt;/away</code>",
        ),
        ({"where": "/etc"}, "<code>spark/tables/quiet/away</code>"),
    ):
        note.write_text(json.dumps(data))
        answer = twin(web, "/tables/quiet/away", kind="text/html")
        assert answer.status == 200
        assert said in answer.text
    note.unlink()
    note.parent.rmdir()


def test_what_a_job_says_of_its_data_is_text(web):
    check = Check(kind=Kind.EXPECT, text="<img src=x onerror=alert(1)>", holds=False)
    batch = Batch(batch_id="b", time=time.time(), ids=["<i>"], wrote=["hits"])
    Checks(web.root, "reports").add(batch, [check])
    text = twin(web, "/tables/reports/hits", kind="text/html").text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<img" not in text
    assert "<i>" not in text


def test_pages_lead_to_tables_where_there_are_some(web):
    assert 'href="/tables"' in page_text(web, "/")
    assert "/tables?queue=reports" in page_text(web, "/q/reports")
    assert "/tables?queue=billing" in page_text(web, "/q/billing")
    assert "/tables?queue=none" not in page_text(web, "/q/none")


def test_a_reader_of_some_queues_sees_their_tables_alone(web):
    told = twin(web, "/tables.json", VIC).json
    seen = {t["table"].split("/")[0] for t in told["tables"]}
    assert {"reports"} <= seen <= {"reports", "quiet"}
    assert told["held"] == []
    assert twin(web, "/tables/reports/hits", VIC).status == 200
    for path in ("/tables/billing/invoices", "/tables/billing/invoices.json"):
        assert twin(web, path, VIC).status == 403
    assert twin(web, "/tables.json?queue=billing", VIC).json["tables"] == []
    assert 'href="/tables"' in twin(web, "/", VIC, "text/html").text
    assert web.get("/tables.json").status == 401


def test_a_version_more_is_seen_and_a_table_that_cannot_be_read_says_why(web):
    place = "/tables/reports/hits.json"
    before = twin(web, place).json["table"]["version"]
    delta_showcase.append(web.root, HITS, 5, [ID], time.time())
    wait_until(lambda: twin(web, place).json["table"]["version"] == before + 1)
    log = web.root.spark / "tables" / "quiet" / "torn" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text('{"commitInfo": {}}\n')
    (log / f"{1:020}.json").write_text('{"commitInfo": {}}\n')
    torn = wait_until(lambda: twin(web, "/tables/quiet/torn.json").json["table"]["why"])
    assert "its log cannot be read" in torn
    assert "cannot be read" in page_text(web, "/tables/quiet/torn")
    assert torn.split(":")[-1].strip() in page_text(web, "/tables")
    assert twin(web, place).json["table"]["why"] == ""
