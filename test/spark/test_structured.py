"""Rows of files, as other people's machines write them: both engines give the same cells."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import parquet

from rq.cli import spark_schema
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.scripts.pipe import Verb
from rq.spark import csv_rows, functions, json_rows, layouts, schemas
from rq.spark.attachments import File
from rq.spark.csv_rows import Dialect
from rq.spark.functions import F
from rq.spark.kept_schemas import KeptSchemas
from rq.spark.remote import Allow

SCHEMA = "id long, name string, price decimal(10,2), day date, at timestamp, ok boolean"
HEAD = "id,name,price,day,at,ok\n"
ROW = "1,a,1.50,2026-01-02,2026-01-02 03:04:05,true\n"
PLAIN = f"{HEAD}{ROW}2,b,2,2026-01-03,2026-01-02T03:04:05+01:00,0\n"
ODD = {
    "plain": PLAIN.encode(),
    "mark": codecs.BOM_UTF8 + PLAIN.encode(),
    "crlf": PLAIN.replace("\n", "\r\n").encode(),
    "cr": PLAIN.replace("\n", "\r").encode(),
    "utf16": PLAIN.replace(",a,", ",ä😀,").encode("utf-16"),
    "utf16-le": PLAIN.encode("utf-16-le"),
    "utf32": PLAIN.encode("utf-32"),
    "gz": gzip.compress(PLAIN.encode()),
    "two-gz": gzip.compress(PLAIN.encode()) + gzip.compress(ROW.encode()),
    "bz2": bz2.compress(PLAIN.encode()),
    "xz": lzma.compress(PLAIN.encode()),
    "empty": b"",
    "blank": b"\n\r\n\n",
    "header-only": HEAD.encode(),
    "header-without-end": HEAD.encode().rstrip(),
    "blank-lines": f"\n\n{HEAD}\n{ROW}\n\n{ROW}\n".encode(),
    "no-end": PLAIN.encode().rstrip(),
    "other-order": b"ok,at,day,price,name,id,more\n1,,,1,x,5,6\n",
    "quotes": f'{HEAD}1,"a ""b"", c",,,,\n2,"",,,,\n3,5" pipe,,,,\n"4",,"1",,,\n'.encode(),
    "lines-in-quotes": f'{HEAD}1,"a\n\nb",,,,\n2,"\r\n",,,,\n3,c,,,,\n'.encode(),
    "never-closed": f'{HEAD}1,"a,,,,\n2,b,,,,\n3,"c",,,,\n'.encode(),
    "behind-quote": f'{HEAD}1,"a"b,,,,\n2,b,,,,\n'.encode(),
    "broken": f"{HEAD}1,a\n{ROW}2,b,,,,,,\n,\nx,y,z,2026-02-30,now,maybe\n".encode(),
    "values": f"{HEAD}0x1f,,,,,\n 1,,,,,\n+1,,,,,\n{9 * 10**18 * 2},,,,,\n1,,1.005,,,\n".encode(),
    "bad-bytes": HEAD.encode() + b"1,a\xffb,,,,\n\xfe,\xc3\xa4,,,,\n",
    "nul": HEAD.encode() + b"1,a\0b,,,,\n",
    "wide": f"{HEAD}1,{'ä' * 200_000},,,,\n".encode(),
    "marks": f"{HEAD}\ufeff\n{ROW}\ufeff1,a,,,,\n\ufeff\ufeff\n{ROW}".encode(),
    "blanks": f"{HEAD}1, a ,,,,\n2,  ,,,,\n   \n".encode(),
}


def rows_of(read):
    """Return a job that keeps the rows of what it reads, in an order."""

    def run(q):
        rows = read(q).toArrow().to_pylist()
        # A double that is no number equals none, not even itself.
        cells = [tuple(map(_comparable, row.values())) for row in rows]
        q.kept = sorted(cells, key=lambda row: (row[0], row[2], row[3]))

    return run


def _comparable(value):
    return repr(value) if isinstance(value, float) else value


def test_odd_files_have_the_same_cells_on_both_engines(give, on_each):
    messages = [give(f"m-{name}", f"{name}.csv", data) for name, data in ODD.items()]
    duck, spark = on_each(rows_of(lambda q: q.csv(SCHEMA)), messages)
    assert duck.endings == spark.endings == {}
    assert duck.kept == spark.kept
    assert [json.loads(q.figures([]))["rescued"] for q in (duck, spark)] == [16, 16]
    by_file = {}
    for row in duck.kept:
        by_file.setdefault(row[0].removeprefix("m-"), []).append(row[3:])
    for name in (
        "mark",
        "crlf",
        "cr",
        "utf16-le",
        "utf32",
        "gz",
        "bz2",
        "xz",
        "no-end",
    ):
        assert by_file[name] == by_file["plain"], name
    assert [row[0] for row in by_file["two-gz"]] == [2, 3, 4]
    assert [row[0] for row in by_file["marks"]] == [2, 3, 4, 5, 6]
    assert [row[1:3] for row in by_file["lines-in-quotes"]] == [
        *((1, "a\n\nb"), (2, "\n"), (3, "c")),
    ]
    assert [row[0] for row in by_file["lines-in-quotes"]] == [2, 5, 7]
    assert [row[-1] for row in by_file["never-closed"]] == ['1,"a,,,,', None, None]
    assert (
        by_file.keys() & {"empty", "blank", "header-only", "header-without-end"}
        == set()
    )


def test_a_value_that_fits_stays_beside_one_that_does_not(give, on_each):
    data = f"{HEAD}x,kept,1,,,\n".encode()
    for q in on_each(
        rows_of(lambda q: q.csv(SCHEMA, most_rescued=1)), [give("m", "a.csv", data)]
    ):
        assert [row[3:7] + row[-1:] for row in q.kept] == [
            (2, None, "kept", Decimal(1), "x,kept,1,,,")
        ]


def test_a_file_without_a_column_ends_its_message_alone(give, on_each):
    messages = [
        give("good", "a.csv", PLAIN.encode()),
        give("bad", "b.csv", b"id,name\n1,a\n"),
    ]
    for q in on_each(rows_of(lambda q: q.csv(SCHEMA)), messages):
        assert len(q.kept) == 2
        [(msg_id, (verb, why))] = q.endings.items()
        assert (msg_id, verb) == ("bad", Verb.ERR)
        assert why == "b.csv: it has no column 'price': its columns are id, name"


@pytest.mark.parametrize(
    ("how", "data"),
    [
        ({"delimiter": ";"}, b"a;b\n1;x,y\n"),
        ({"delimiter": "\t", "quote": ""}, b"a\tb\n1\tx,y\n"),
        ({"header": False}, b'1,"x,y"\n'),
        ({"quote": "'"}, b"a,b\n1,'x,y'\n"),
        ({"encoding": "latin-1"}, b'a,b\n1,"x,y"\n'),
        ({"null": "NA"}, b'b,a\n"x,y",1\n'),
    ],
)
def test_what_is_said_of_the_form_is_heeded(how, data):
    reader = csv_rows.Reader(schemas.parsed("a long, b text"), Dialect(**how))
    [batch] = [batch for batch in reader.rows(iter([data])) if batch.num_rows]
    [row] = batch.to_pylist()
    assert (row["a"], row["b"], row["_rescued"]) == (1, "x,y", None)


def test_rows_do_not_depend_on_where_blocks_end():
    for name, data in ODD.items():
        whole = read_in(len(data) or 1, data[:5000])
        for size in (1, 7, 64):
            assert read_in(size, data[:5000]) == whole, name


def read_in(size, data):
    """Return the rows of a text that comes in blocks of a size."""
    reader = csv_rows.Reader(schemas.parsed("id text, name text"), Dialect())
    blocks = (data[at : at + size] for at in range(0, len(data), size))
    try:
        rows = [row for batch in reader.rows(blocks) for row in batch.to_pylist()]
    except BadInput:  # what should be a header is no text
        return "refused"
    return sorted(rows, key=lambda row: row["lineno"])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("", "it has no columns"),
        ("id", "'id' is no column"),
        ("id long, ID text", "two columns 'id'"),
        ("id number", "'number' is no type"),
        ("p decimal(40,2)", "decimal\\(40,2\\) is none"),
        ("file text, file_ text", "two columns 'file_'"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(schema, why):
    with pytest.raises(BadInput, match=why):
        schemas.parsed(schema)


def test_columns_that_are_called_as_those_of_rq_get_another_name():
    columns = schemas.parsed("file text, `a b` int")
    assert schemas.arrow(columns).names == [
        *("msg_id", "src", "file", "lineno", "file_", "a b", "_rescued"),
    ]


@pytest.mark.parametrize(
    "how",
    [
        {"delimiter": "ab"},
        {"quote": ","},
        {"encoding": "x"},
    ],
)
def test_a_form_that_cannot_be_is_refused(how):
    with pytest.raises(BadInput, match=r"^q\.csv: "):
        layouts.csv("a text", "*", how)


def test_a_job_fails_when_too_many_rows_do_not_fit(give, on_each):
    message = give("m", "a.csv", b"a,b\n1,2\nx,3\n4,5\n")

    def run(q):
        table = q.csv("a long, b long", most_rescued=0.5)
        q.expect(table)
        why = r"1 of 3 rows .*at most 10% may: a\.csv line 3: 'x,3'"
        with pytest.raises(BadInput, match=why):
            q.expect(table, most_rescued=0.1)

    on_each(run, [message])
    with pytest.raises(
        BadInput, match=r"^1 of 1 rows do not fit their columns: a\.csv"
    ):
        on_each(lambda q: q.csv("a long").collect(), [give("n", "a.csv", b"a\nx\n")])


# ---- JSON and Parquet

JSON_SCHEMA = (
    "id long, n int, name string, x double, price decimal(10,2), day date, ok boolean"
)
FIT = b'{"id": 1, "n": 2, "name": "\xc3\xa4\\n", "x": 1, "price": "1.50", "day": "2026-01-02", "ok": true}'
ODD_JSON = {
    "plain": FIT + b"\n" + FIT + b"\n",
    "mark": codecs.BOM_UTF8 + FIT + b"\r\n" + FIT,
    "utf16": (FIT + b"\n" + FIT + b"\n").decode().encode("utf-16"),
    "gz": gzip.compress(FIT + b"\n" + FIT + b"\n"),
    "array": b" [" + FIT + b",\n" + FIT + b"]",
    "empty": b"",
    "blank": b"\n \n",
    "no-columns": b"{}\n{}\n",
    "others": b'{"more": {"a": [1]}, "id": 5}\n{"id": 6}\n',
    "nested": b'{"name": {"a": [1, null]}, "id": 1}\n{"name": 1.50}\n{"name": true}\n',
    "types": b'{"id": 1.0}\n{"id": "1"}\n{"n": 3000000000}\n{"x": "1"}\n{"ok": 1}\n{"day": 5}\n'
    b'{"price": 1.005}\n{"price": 2.5}\n{"id": 99999999999999999999}\n{"day": "soon"}\n',
    "broken": b'{"id": 1\n{"id": 2}\n[3]\n4\nnull\n{"id": 5} {"id": 6}\n{"x": NaN}\n',
    "over-lines": b'{"id": 1,\n"n": 2}\n{"id": 3}{"id": 4}\n',
    "twice": b'{"id": 1, "id": 2}\n{"id": 3}\n',
    "large": b"".join(
        b'{"%s": %s, "id": 5}\n' % (name, figure)
        for figure in (b"1" * 400, b"1.8e308", b"9" * 300 + b"e10", b"1e999", b"0e999")
        for name in (b"x", b"other", b"name", b"price")
    ),
    "bytes": b'{"name": "a\xffb"}\n{"name": "\\ud800"}\n{"name": "\\u0000"}\n',
}


def test_odd_files_of_json_have_the_same_cells_on_both_engines(give, on_each):
    messages = [
        give(f"m-{name}", f"{name}.json", data) for name, data in ODD_JSON.items()
    ]
    duck, spark = on_each(rows_of(lambda q: q.json(JSON_SCHEMA)), messages)
    assert duck.endings == spark.endings == {}
    assert duck.kept == spark.kept
    by_file = {}
    for row in duck.kept:
        by_file.setdefault(row[0].removeprefix("m-"), []).append(row[3:])
    for name in ("mark", "utf16", "gz", "array"):
        assert by_file[name] == by_file["plain"], name
    assert [row[3] for row in by_file["nested"]] == ['{"a":[1,null]}', "1.5", "true"]
    assert [row[0] for row in by_file["types"] if row[-1] is None] == [8]
    assert [row[1] for row in by_file["broken"]] == [None, 2, *[None] * 5]
    assert [row[1] for row in by_file["twice"]] == [2, 3]


def test_whether_a_line_of_json_fits_does_not_depend_on_others():
    lines = [line for data in ODD_JSON.values() for line in data.split(b"\n")]
    columns = schemas.parsed(JSON_SCHEMA)

    def read(texts):
        reader = json_rows.Reader(columns)
        rows = [row for batch in reader.rows(iter(texts)) for row in batch.to_pylist()]
        return [{**row, "lineno": 0} for row in rows]

    plain = [line for line in lines if not line.lstrip().startswith((b"[", b"\x1f"))]
    plain = [line for line in plain if b"\0" not in line and b"\r" not in line]
    alone = [row for line in plain for row in read([line + b"\n"])]
    assert read([b"\n".join(plain)]) == alone
    # Arrow alone would take these three lines for three objects.
    assert [row["id"] for row in read([ODD_JSON["over-lines"]])] == [None] * 3


def test_figures_of_json_are_never_rounded():
    columns = schemas.parsed("id long, price decimal(38,2), x double, name string")
    lines = [
        b'{"price": 12345678901234567890123456789012345.67, "id": 9223372036854775807}',
        b'{"price": 1234567890123456.78, "id": -9223372036854775808, "x": 0.1}',
        b'{"price": 0.3000000000000000000001, "id": 9223372036854775808}',
        b'{"price": 2.50, "name": 1234567890123456.5, "x": 18446744073709551616}',
        b'{"price": 1e999, "x": 1e999, "name": 1e999}',
        b'{"price": 1e3, "other": 1e999, "name": {"a": 0.12345678901234567}}',
        b'{"price": 1, "name": "\\ud800", "other": 1e999}',
    ]
    reader = json_rows.Reader(columns)
    batches = reader.rows(iter([b"\n".join(lines)]))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [tuple(row.values())[1:-1] for row in rows] == [
        (2**63 - 1, Decimal("12345678901234567890123456789012345.67"), None, None),
        (-(2**63), Decimal("1234567890123456.78"), 0.1, None),
        (None, None, None, None),
        (None, Decimal("2.50"), 2.0**64, "1234567890123456.5"),
        (None, None, None, None),
        (None, Decimal(1000), None, '{"a":0.12345678901234566}'),
        (None, None, None, None),
    ]
    assert [row["_rescued"] is not None for row in rows] == [
        False,
        False,
        True,
        False,
        True,
        False,
        True,
    ]


def test_parquet_has_the_same_cells_on_both_engines(give, on_each, tmp_path):
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    table = pa.table(
        {
            "id": pa.array([1, 2], pa.int16()),
            "name": pa.array(["ä", None]).dictionary_encode(),
            "at": pa.array([moment, None], pa.timestamp("ns", "Europe/Berlin")),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        }
    )
    parquet.write_table(table, tmp_path / "t")
    data = (tmp_path / "t").read_bytes()
    other = tmp_path / "o"
    parquet.write_table(table.set_column(0, "id", pa.array(["1", "2"])), other)
    messages = [
        give("a", "a.parquet", data),
        give("b", "b.parquet.gz", gzip.compress(data)),
        give("c", "c.parquet", other.read_bytes()),
        give("d", "d.parquet", b"PAR1 is no Parquet"),
    ]
    duck, spark = on_each(rows_of(lambda q: q.parquet()), messages)
    assert duck.kept == spark.kept
    assert duck.endings == spark.endings
    assert [row[:1] + row[3:] for row in duck.kept if row[0] == "b"] == [
        ("b", 1, 1, "ä", moment, Decimal("1.50"), None),
        ("b", 2, 2, None, None, None, None),
    ]
    assert {name: verb for name, (verb, _) in duck.endings.items()} == {
        "c": Verb.ERR,
        "d": Verb.ERR,
    }
    assert duck.endings["c"][1].startswith(
        "c.parquet: its column 'id' is string, not int"
    )


# ---- lists and structs

HOLDING = "id int, tags array<string>, at struct<lat: double, `the lon` double>, "
HOLDING += "lines array<struct<sku: string, n: long>>, deep array<array<int>>"
HELD = [
    b'{"id": 1, "tags": ["a", null, "b"], "at": {"lat": 1, "the lon": 2.5}, "more": [1]}',
    b'{"id": 2, "lines": [{"sku": "x", "n": 3, "more": 1}, {}, null], "deep": [[1], [], null]}',
    b'{"id": 3, "tags": [], "at": {}, "lines": []}',
    b'{"id": 4, "tags": null, "at": null}',
    b'{"id": 5, "tags": ["a", 1, {"b": 2}]}',  # as a column of texts takes it
    b'{"id": 6, "tags": "a"}',
    b'{"id": 7, "at": {"lat": "1"}}',
    b'{"id": 8, "at": [1, 2]}',
    b'{"id": 9, "deep": [[3000000000]]}',
    b'{"id": 10, "at": {"lat": 1, "lat": 2}}',
    b'{"id": 11, "tags": {"a": 1}, "at": {"lat": 5}}',
]


def test_lists_and_structs_of_json_are_alike_on_both_engines(give, on_each):
    data = b"\n".join(HELD) + b"\n"
    message = give("m", "a.json", data)
    duck, spark = on_each(rows_of(lambda q: q.json(HOLDING)), [message])
    assert duck.endings == spark.endings == {}
    assert plain(duck.kept) == plain(spark.kept)
    rows = {row[4]: row[5:] for row in duck.kept}
    assert rows[1] == (["a", None, "b"], {"lat": 1.0, "the lon": 2.5}, None, None, None)
    assert rows[2][2] == [{"sku": "x", "n": 3}, {"sku": None, "n": None}, None]
    assert rows[2][3] == [[1], [], None]
    assert rows[5][0] == ["a", "1", '{"b":2}']
    assert [number for number, row in rows.items() if row[-1]] == [6, 7, 8, 9, 11]
    assert rows[11][:2] == (None, {"lat": 5.0, "the lon": None})


def plain(rows):
    """Return rows in which a struct of Spark, too, is a dictionary."""
    return json.loads(json.dumps([[str(row[0]), *map(repr, row[1:])] for row in rows]))


def test_whether_what_a_line_holds_fits_does_not_depend_on_others():
    columns = schemas.parsed(HOLDING)

    def read(texts):
        reader = json_rows.Reader(columns)
        rows = [row for batch in reader.rows(iter(texts)) for row in batch.to_pylist()]
        return [{**row, "lineno": 0} for row in rows]

    fits = [line for line in HELD if b'"id": 10' not in line]
    for lines in (HELD, fits[:4], HELD[4:], fits):
        alone = [row for line in lines for row in read([line + b"\n"])]
        assert read([b"\n".join(lines)]) == alone


def test_json_in_a_column_of_csv_is_taken_apart_by_the_job(give, on_each):
    def run(q):
        rows = q.csv("id int, tags string").select("tags")
        if q.tables.engine == functions.SPARK:
            apart = rows.select(F.from_json("tags", "array<string>").alias("tags"))
        else:
            rows.createOrReplaceTempView("rows")
            apart = q.spark.sql(
                "SELECT from_json(tags, '[\"VARCHAR\"]') AS tags FROM rows"
            )
        q.kept = apart.toArrow().to_pylist()

    message = give("m", "a.csv", b'id,tags\n1,"[""a"", ""b""]"\n')
    for q in on_each(run, [message]):
        assert q.kept == [{"tags": ["a", "b"]}]


@pytest.mark.parametrize(
    ("kind", "schema", "why"),
    [
        (
            "csv",
            "a array<int>",
            "'a' is array<int>: CSV has no lists and no structs: say string",
        ),
        ("json", "a array<date>", "int, bigint, double, boolean, not date: say string"),
        ("json", "a struct<>", "is no type"),
        ("json", "a array<", "is no type"),
        ("json", "a map<string, int>", "is no type: .*array<TYPE>, struct<NAME: TYPE>"),
        ("json", "a struct<b: int, B: int>", "two members of one name"),
    ],
)
def test_what_a_column_cannot_hold_is_one_sentence(kind, schema, why):
    with pytest.raises(BadInput, match=why):
        layouts.stated(kind, schema, "*")


def test_what_is_nested_too_deep_to_be_written_is_one_row_or_one_sentence():
    deep = b'{"n": 1, "s": ' + b"[" * 500 + b"]" * 500 + b"}"

    def read(text):
        reader = json_rows.Reader(schemas.parsed("n long, s string"))
        return [row for batch in reader.rows(iter([text])) for row in batch.to_pylist()]

    first, second = read(deep + b'\n{"n": 2, "s": "b"}\n')
    assert (first["n"], first["s"], first["_rescued"]) == (1, None, deep.decode())
    assert (second["n"], second["s"], second["_rescued"]) == (2, "b", None)
    with pytest.raises(BadInput, match="its array cannot be taken apart"):
        read(b"[" + deep + b"]")


def test_lists_and_structs_of_parquet_are_alike_on_both_engines(
    give, on_each, tmp_path
):
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    at = pa.struct([("when", pa.timestamp("ns", "UTC")), ("n", pa.int16())])
    table = pa.table(
        {
            "tags": pa.array([["a", None], None], pa.large_list(pa.string())),
            "at": pa.array([{"when": moment, "n": 1}, None], at),
        }
    )
    parquet.write_table(table, tmp_path / "t")
    maps = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    parquet.write_table(pa.table({"tags": maps}), tmp_path / "m")
    good = give("good", "a.parquet", (tmp_path / "t").read_bytes())
    bad = give("bad", "b.parquet", (tmp_path / "m").read_bytes())
    stated = "tags array<string>"
    for q in on_each(rows_of(lambda q: q.parquet(stated)), [good, bad]):
        assert [row[4] for row in q.kept] == [["a", None], None]
        assert q.endings["bad"][1].startswith("b.parquet: its column 'tags' is map<")
    for q in on_each(rows_of(lambda q: q.parquet()), [good]):
        assert q.kept[0][5] == {"when": moment, "n": 1}
        assert q.kept[1][4:6] == (None, None)


# ---- inferred


def test_columns_are_inferred_of_the_first_file_and_others_must_have_them(
    give, on_each
):
    first = b"id,zip,day,x,none\n1,00420,2026-01-02,1.5,\n2,10115,2026-01-03,2,\n"
    messages = [
        give("a", "a.csv", first),
        give("b", "b.csv", first.replace(b"2,10115", b"two,10115")),
        give("c", "c.csv", b"id,zip,day,x\n"),
        give("d", "d.csv", b"id,zip,day,x,none,more\n"),
    ]
    for q in on_each(rows_of(lambda q: q.csv()), messages):
        assert q.kept[0][3:] == (2, 1, "00420", date(2026, 1, 2), "1.5", None, None)
        assert [row[-1] for row in q.kept] == [*[None] * 3, "two,10115,2026-01-03,2,"]
        assert q.endings.keys() == {"c", "d"}
        assert "it has another column, 'more'" in q.endings["d"][1]


def test_inferred_columns_are_kept_once_a_job_has_succeeded(tmp_path):
    path, may = tmp_path / "schemas", Allow()
    file = tmp_path / "a.json"
    file.write_bytes(b'{"id": 1, "name": "x", "at": "2026-01-02T00:00:00Z"}\n')
    every = [File("m", "", "a.json", str(file), 1)]
    kept = KeptSchemas(path)
    layout = kept.of(layouts.stated("json", "", "*.json"), every, may)
    assert schemas.described(layout.columns) == (
        "`id` bigint, `name` string, `at` timestamp"
    )
    assert not path.exists()
    kept.keep()
    file.write_bytes(b'{"id": 2, "more": 1}\n')
    later = KeptSchemas(path).of(layouts.stated("json", "", "*.json"), every, may)
    assert later.columns == layout.columns
    [rows] = later.batches(every[0], may)
    assert rows.to_pylist()[0]["_rescued"] == '{"id": 2, "more": 1}'
    [name] = path.iterdir()
    assert name.name == "json-%2A.json.json"
    name.write_text("{")
    with pytest.raises(BadConfig, match="is damaged"):
        KeptSchemas(path).of(layouts.stated("json", "", "*.json"), every, may)


def test_kept_columns_are_listed_shown_and_forgotten(tmp_path, capsys):
    root = Root(tmp_path)
    for queue in ("a", "b"):
        root.queue(queue).path.mkdir(parents=True)
        root.queue(queue).config.write_text("{}")
        place = tmp_path / "spark/schemas" / queue
        place.mkdir(parents=True)
        kept = {"schema": "`id` bigint, `a b` string", "msg_id": "m", "file": "a.csv"}
        (place / "csv-%2A.csv.json").write_text(json.dumps(kept))
    (place / "json.json").write_text("{")

    def said(*words):
        assert spark_schema.schema(root, list(words)) == 0
        return capsys.readouterr().out

    told = json.loads(said("ls", "--json"))
    assert [(kept["queue"], kept["name"]) for kept in told] == [
        *(("a", "csv-%2A.csv"), ("b", "csv-%2A.csv"), ("b", "json"))
    ]
    assert told[2]["schema"] == "damaged: forget it"
    assert [kept["queue"] for kept in json.loads(said("ls", "a", "--json"))] == ["a"]
    assert "a b     string" in said("show", "b", "csv-%2A.csv")
    with pytest.raises(
        BadInput, match=r"b has no columns '../a/csv': csv-%2A\.csv, json"
    ):
        said("forget", "b", "../a/csv")
    said("forget", "b", "json")
    assert len(json.loads(said("ls", "--json"))) == 2
    said("forget", "b")
    assert [kept["queue"] for kept in json.loads(said("ls", "--json"))] == ["a"]
