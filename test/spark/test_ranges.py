"""Large plain files are read in parts: each line once, with its number in the file."""

from __future__ import annotations

import bz2
import random

import pytest

from rq.errors import BadInput
from rq.spark import remote

attachments = pytest.importorskip("rq.spark.attachments")

from rq.spark import file_parts, layouts, spark_tables  # noqa: E402
from rq.spark.attachments import File  # noqa: E402
from rq.spark.layouts import LINES  # noqa: E402

ALLOW = remote.allow([])


def write(path, rnd):
    """Write lines of all lengths, with and without an end; return their texts."""
    texts = ["x" * rnd.choice((0, 1, 5, 30, 300)) + str(n) for n in range(200)]
    ends = [rnd.choice(("\n", "\r\n")) for _ in texts]
    if rnd.random() < 0.5:
        ends[-1] = ""
    pairs = zip(texts, ends, strict=True)
    path.write_bytes("".join(text + end for text, end in pairs).encode())
    return texts


def large(path):
    return File("m1", "web1", "a.log", str(path), path.stat().st_size)


def read(parts):
    return [
        (row["lineno"], row["line"])
        for part in parts
        for batch in attachments.batches(part, ALLOW)
        for row in batch.to_pylist()
    ]


def test_parts_hold_each_line_once_with_its_number(tmp_path, monkeypatch):
    rnd = random.Random(1)
    for _ in range(60):
        monkeypatch.setattr(file_parts, "_BLOCK", rnd.choice((7, 64, 10**6)))
        texts = write(tmp_path / "log", rnd)
        size = rnd.choice((1, 50, 300, 3000))
        parts = file_parts.parted([large(tmp_path / "log")], LINES, size)
        assert len(parts) > 1
        assert read(parts) == list(enumerate(texts, 1))
        assert sum(part.size for part in parts) == (tmp_path / "log").stat().st_size


def test_a_part_whose_bytes_look_compressed_is_read_as_text(tmp_path, monkeypatch):
    monkeypatch.setattr(file_parts, "_BLOCK", 8)
    text = b"first line\nBZh9 is a line\n\x28\xb5\x2f\xfd another\n"
    (tmp_path / "log").write_bytes(text)
    parts = file_parts.parted([large(tmp_path / "log")], LINES, 10)
    assert len(parts) == 3
    assert [number for number, _ in read(parts)] == [1, 2, 3]


def test_what_is_small_compressed_far_or_gone_stays_whole(tmp_path):
    (tmp_path / "log").write_bytes(b"a\n" * 50)
    (tmp_path / "log.bz2").write_bytes(bz2.compress(random.Random(1).randbytes(1000)))
    far = File("m1", "", "s3://b/log", "s3://b/log", 10**9)
    gone = File("m1", "", "gone", str(tmp_path / "gone"), 10**9)
    whole = [large(tmp_path / "log"), large(tmp_path / "log.bz2"), far, gone]
    assert file_parts.parted(whole, LINES, 100) == whole


def test_many_tasks_read_one_file(spark, tmp_path):
    texts = write(tmp_path / "log", random.Random(2))
    frame = spark_tables.rows(spark, [large(tmp_path / "log")], part=2000)
    assert frame.rdd.getNumPartitions() > 3
    found = frame.select("msg_id", "src", "file", "lineno", "line").collect()
    of = ("m1", "web1", "a.log")
    assert sorted(found) == [(*of, *pair) for pair in enumerate(texts, 1)]


# ---- rows

ODD = [
    "a",
    ",",
    '"',
    '""',
    '"b',
    'c"',
    " ",
    "1",
    "\n",
    "\r\n",
    "\n\n",
    "\r",
    "ä",
    '{"a": 1}',
]
ODD += ["[", "]", '{"a": "x\\"y"}', ',"d"', '"e, f"', 'g" h', "{", "null", '{"b": [1]}']
ODD += ["\ufeff", '\n\ufeff"a,"\n', "\n\ufeff\n"]  # a mark is one at the start alone
LARGE = ["1" * 400, "-1" + "0" * 309, "1.8e308", "9" * 300 + "e10", "1e999", "0e999"]
FIGURES = [f'{{"{name}": {figure}}}\n' for name in "ac" for figure in LARGE]
FIGURES += [f'{{"b": [2.5, {figure}]}}\n' for figure in LARGE]
FIGURES += ['{"a": 2.5}\n'] * 30
CSV = {
    "usual": layouts.csv("a string, b string", "*", {}),
    "no header": layouts.csv("a string, b string", "*", {"header": False}),
    "no quote": layouts.csv("a string, b string", "*", {"quote": ""}),
    "signs": layouts.csv("a string, b string", "*", {"quote": "'", "delimiter": ";"}),
}
JSON = {
    "json": layouts.stated("json", "a string, b string", "*"),
    "figures": layouts.stated("json", "a double, b array<double>", "*"),
}


def odd(rnd):
    """Return a text of which it is hard to say where a row begins."""
    signs = rnd.sample(ODD, rnd.randint(2, len(ODD)))
    if rnd.random() < 0.7:
        signs = [sign for sign in signs if sign not in ("\r", '"', '"b', 'c"')]
    text = "".join(
        rnd.choice([*signs, "\n", "x,y\n"]) for _ in range(rnd.randint(5, 60))
    )
    head = rnd.choice(("a,b\n", "\n\r\na,b\r\n", '"a",b\n', 'b,"a"\n', "", "a;b\n"))
    mark = rnd.choice((b"", b"", b"\xef\xbb\xbf"))
    return mark + head.encode() + text.encode().replace(b"1", b"\xff")


def figures(rnd):
    """Return lines of JSON, few of which are too large."""
    return "".join(rnd.choice(FIGURES) for _ in range(rnd.randint(2, 9))).encode()


def cells(layout, parts):
    """Return all rows, or why there are none."""
    try:
        rows = [
            row
            for part in parts
            for batch in layout.batches(part, ALLOW)
            for row in batch.to_pylist()
        ]
    except BadInput as error:
        return str(error)
    return sorted(rows, key=lambda row: row["lineno"])


@pytest.mark.parametrize("layout", [*CSV.values(), *JSON.values()], ids=[*CSV, *JSON])
def test_rows_of_parts_are_those_of_the_whole(layout, tmp_path, monkeypatch):
    rnd = random.Random(3)
    text = figures if layout is JSON["figures"] else odd
    cut = 0
    for _ in range(1500):
        monkeypatch.setattr(file_parts, "_BLOCK", rnd.choice((1, 7, 64, 10**6)))
        (tmp_path / "log").write_bytes(data := text(rnd))
        whole = large(tmp_path / "log")
        parts = file_parts.parted([whole], layout, rnd.choice((1, 5, 20)))
        cut += len(parts) > 1
        assert cells(layout, parts) == cells(layout, [whole]), data
    assert cut > 300


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b'a,b\n1,"x ""y"""\n2,z\n3,\n', 4),
        (b'a,b\r\n1,"x"\r\n2,z\r\n3,\r\n', 4),
        (b'a,b\n1,"x\ny"\n2,z\n3,\n', 1),
        (b'a,b\n5" pipe,"x\ny"\n3,\n4,\n', 1),
        (b'a,b\n5" pipe,"x\ny",6"\n3,\n4,\n', 1),
        (b'a,b\n1,"x"y\n2,z\n3,\n', 1),
        (b"a,b\n1,x\r2,z\n3,\n", 1),
        (b'a,b\n1,2\n\xef\xbb\xbf"a,"\n3,4"\n5,6\n', 1),
    ],
)
def test_a_file_whose_quotes_may_hold_lines_stays_whole(data, parts, tmp_path):
    (tmp_path / "log").write_bytes(data)
    parted = file_parts.parted([large(tmp_path / "log")], CSV["usual"], 1)
    assert len(parted) == parts


def test_both_engines_read_rows_of_a_file_in_parts(give, on_each, monkeypatch):
    monkeypatch.setattr(file_parts, "SIZE", 300)
    rows = "".join(f'{n},"name {n}"\r\n' for n in range(200))
    objects = "".join(f'{{"id": {n}}}\n' for n in range(200))
    messages = [
        give("c", "a.csv", f"id,name\r\n{rows}x,y,z\r\n".encode()),
        give("j", "b.json", objects.encode()),
    ]

    def run(q):
        table = q.csv("id int, name string", only="*.csv", most_rescued=0.1)
        own = q.json("id int", only="*.json").toArrow().to_pylist()
        q.kept = [*table.toArrow().to_pylist(), *own]

    for q in on_each(run, messages):
        found = {(row["msg_id"], row["lineno"]): row for row in q.kept}
        assert len(found) == len(q.kept) == 401
        assert all(found["c", n + 2]["name"] == f"name {n}" for n in range(200))
        assert all(found["j", n + 1]["id"] == n for n in range(200))
        assert found["c", 202]["_rescued"] == "x,y,z"
