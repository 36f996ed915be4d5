"""Lines, and names of files, as other people's machines write them: both engines take them
alike."""

from __future__ import annotations

import json

import pytest

from rq.errors import BadInput
from rq.scripts.pipe import Verb
from rq.spark import bronze, functions, literal, remote
from rq.spark.given import Given

HEAD = "10.0.0.1 - - [02/Jan/2026:03:04:05 +0100]"
LONG = 8_000  # of what Java would walk by calls of itself, or again and again


# ---- lines


def line(request, status="400", size="0", head=HEAD, agent="a"):
    return f'{head} "{request}" {status} {size} "-" "{agent}"'


def known(method=None, url=None, protocol=None, status=400, size=0, user="-"):
    return (method, url, protocol, status, size, user, True)


HTTP = "HTTP/1.1"
MALFORMED = {
    line(""): known(),
    line("-"): known(),
    line("-", "408", "-"): known(status=408, size=None),
    line("-", "-", "-"): known(status=None, size=None),
    line(r"\x16\x03\x01\x02\xFC\" 200 5 \"-\" \"x\""): known(),
    line("\ufffd \u2028\x85\x0b"): known(),
    line("GET /a b c HTTP/1.1"): known("GET", "/a b c", HTTP),
    line("GET /a b\u2028 HTTP/1.1 "): known("GET", "/a b\u2028", HTTP),
    line("GET /a b\r"): known("GET", "/a b\r"),
    line("GET /a\x0bb HTTP/1.1"): known("GET", "/a\x0bb", HTTP),
    line("GET /\x00 \U0001f600 HTTP/1.1"): known("GET", "/\x00 \U0001f600", HTTP),
    line("GET  HTTP/1.1"): known("GET", None, HTTP),
    line("get / HTTP/1.1"): known("get", "/", HTTP),
    line("GET"): known(),
    line("GET / HTTP/1.1", head=HEAD.replace("- -", "- J. [x] Doe")): known(
        "GET", "/", HTTP, user="J. [x] Doe"
    ),
    line("GET / HTTP/1.1", head=HEAD.replace("- -", "- ")): known(
        "GET", "/", HTTP, user=None
    ),
    line(r"\x01" * LONG): known(),
    line("GET /" + " x" * LONG): known("GET", "/" + " x" * LONG),
    line("GET /" + " " * LONG + "x"): known("GET", "/" + " " * LONG + "x"),
}
WHOLE = {
    line("GET /a HTTP/1.1", "200", "5"): ("GET", "/a", HTTP, 200, 5, "-", False),
    line("M-SEARCH * HTTP/1.1"): ("M-SEARCH", "*", HTTP, 400, 0, "-", False),
    line("GET /", "200", "9" * 20): ("GET", "/", "", 200, None, "-", False),
    line("GET /a\x85 HTTP/1.1", agent=r"\"" * LONG): (
        *("GET", "/a\x85", HTTP, 400, 0, "-", False),
    ),
}
NO_LINES = [
    "",
    "no log",
    f"{HEAD} ",
    line("\\"),
    line("GET / HTTP/1.1", "\uff12\uff10\uff10"),
    f'{HEAD} "GET / HTTP/1.1" 400 0 "-',
    "a b " + "[" * LONG,
    "a b " + '[x] "' * LONG,
    'a b [x] "' + r"\"" * LONG,
]
TIMES = [
    *("2/Jan/2026:03:04:05 +0100", "02/JAN/2026:03:04:05 +0100", "x"),
    *("02/Jan/2026:24:04:05 +0100", "30/Feb/2026:03:04:05 +0100"),
    *("02/Jan/2026:03:04:05 +01:00", "02/Jan/2026:03:04:05 Z", "02/Jan/2026:03:04:05"),
    *("02/Jan/26:03:04:05 +0100", "02/Jan/0000:03:04:05 +0100"),
    *("02/Jan/2026:03:04:05 +9900", "02/Jan/2026:03:04:05 +0199"),
    *(" 02/Jan/2026:03:04:05 +0100", "29/Feb/2024:00:00:00 -0000"),
]


@pytest.mark.slow
def test_odd_lines_become_the_same_cells_on_both_engines(give, on_each):
    texts = [*MALFORMED, *WHOLE, *NO_LINES]
    texts += [line("GET / HTTP/1.1", head=f"a - - [{time}]") for time in TIMES]
    data = "".join(f"{text}\n" for text in texts).encode()
    data += line("?").encode().replace(b"?", b"\x16\xff\xfe")
    cells, refused = [], []

    def job(q):
        hits = q.parse(q.lines(), "combined")
        rows = hits.toArrow().to_pylist()
        cells.append({row["lineno"]: row for row in rows})
        refused.append({row["line"] for row in q.rejects.collect()})

    duckdb, spark = on_each(job, [give("m", "log", data)])
    assert cells[0] == cells[1]
    named = ("method", "url", "protocol", "status", "bytes", "user", "malformed")
    for number, wanted in enumerate([*MALFORMED.values(), *WHOLE.values()], 1):
        assert tuple(cells[0][number][name] for name in named) == wanted, number
    assert refused[0] == refused[1] == set(NO_LINES)
    malformed = len(MALFORMED) + 1
    wanted = {"rejected": len(NO_LINES), "malformed": malformed}
    assert duckdb.counted == spark.counted == wanted


def test_an_expression_of_ones_own_knows_no_malformed_lines(give, on_each):
    def job(q):
        assert (
            q.parse(q.lines(), r"^(?P<malformed>\S+)$").collect()[0]["malformed"] == "x"
        )

    for ended in on_each(job, [give("m", "log", b"x\na b\n")]):
        assert ended.counted == {"rejected": 1, "malformed": None}


def test_groups_are_taken_of_a_line_with_any_signs_and_of_its_first_match(
    give, on_each
):
    data = "x a=1 b=\x1e a=2 b=3\nx a=1 b=2 a=3 b=4\na=5 b=$1\\\n\x1e\nno\na= b=\n"
    form = r" ?a=(?P<a>(\d)*) b=(?P<b>\S*|\x1e)"
    verbose = r"(?x)\x20?a=(?P<a>(\d)*)\x20b=(?P<b>\S*|\x1e) # only Java knows such"

    def job(q):
        is_spark = q.tables.engine == functions.SPARK
        rows = (
            q.parse(q.lines(), verbose if is_spark else form)
            .orderBy("lineno")
            .collect()
        )
        q.kept = [(row["lineno"], row["a"], row["b"]) for row in rows]

    for q in on_each(job, [give("m", "log", data.encode())]):
        assert q.kept == [
            *((1, "1", "\x1e"), (2, "1", "2"), (3, "5", "$1\\"), (6, "", "")),
        ]
        assert q.counted == {"rejected": 2, "malformed": None}


# ---- names of files

NAMES = [
    "log [1] (copy).txt",
    "[ab]*?.txt",
    "{a,b}.txt",
    "cafe\u0301 \u00fc.txt",
    "\U0001f4c4\u200d\U0001f680",
    "a;b`c`$(d)'\"&|.txt",
    "%41#?x=1.txt",
    "~",
    "\u6f22" * 83,
]


@pytest.mark.slow
def test_files_of_any_name_are_read_as_they_are_called(give, on_each):
    messages = [
        give(f"m{number}", name, f"line {number}\n".encode())
        for number, name in enumerate(NAMES)
    ]

    def job(q):
        lines = {row["file"]: row["line"] for row in q.lines().collect()}
        assert lines == {name: f"line {number}" for number, name in enumerate(NAMES)}
        for message in q.messages[:4]:
            [path] = message.attachments
            [row] = q.spark.read.csv(literal(path)).collect()
            assert row[0] == lines[path.name]
        for name in NAMES:
            q.attach(name, name)
        q.send("box")

    for ended in on_each(job, messages):
        assert not ended.endings
        assert [file.name for file in ended.letters[0].files] == NAMES


def test_a_name_that_is_no_utf8_ends_its_own_message_alone(give, on_each):
    messages = [
        give("m0", "log", b"a\n"),
        give("m1", b"caf\xe9.log", b"b\n"),
        give("m2", "log [1]", b"c\n"),
    ]

    def job(q):
        assert sorted(row["line"] for row in q.lines().collect()) == ["a", "c"]

    for ended in on_each(job, messages):
        verb, why = ended.endings.pop("m1")
        assert (verb, ended.endings) == (Verb.ERR, {})
        assert "is no UTF-8" in why
        why.encode()
        assert ended.ids == ["m0", "m2"]


def test_the_history_is_read_below_a_root_of_any_name(spark, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    for name in ("rq [1]{a,b}*", "rq 1a", "rq 1b"):
        place = tmp_path / name / "date=2026-01-02/batch=1"
        place.mkdir(parents=True)
        parquet.write_table(pa.table({"queue": [name]}), place / "part.parquet")
    top = tmp_path / "rq [1]{a,b}*"
    [row] = bronze.read(spark, top, [top / "date=2026-01-02/batch=1"]).collect()
    assert (row["queue"], row["date"], row["batch"]) == (top.name, "2026-01-02", "1")


# ---- what is no text, and what is nothing


def test_lines_that_are_no_text_are_counted_and_only_so_many_may_be(give, on_each):
    data = b"caf\xe9\n" * 3 + b"tea\n" * 97

    def count(q):
        assert q.lines().count() == 100

    for q in on_each(count, [give("m1", "menu", data)]):
        assert json.loads(q.figures([]))["replaced"] == 3

    def strict(q):
        q.expect(q.lines(), most_replaced=0.03)
        with pytest.raises(
            BadInput, match="6 of 200 lines hold bytes that are neither"
        ):
            q.expect(q.lines().where("lineno > 0"), most_replaced=0.01)
        with pytest.raises(BadInput, match=r"most_replaced=2 is not 0 to 1"):
            q.expect(q.lines(), most_replaced=2)

    on_each(strict, [give("m2", "menu", data)])


@pytest.mark.parametrize(
    ("param", "says"),
    [
        ("", "nothing to read"),
        ("orders of May", "nothing to read"),
        ("gs://logs/a", "gs:// is not read here: http://, https://, s3:// are"),
        ("ftp://h/a", "ftp:// is not read here"),
        ("FILE:///etc/passwd", "file:// is not read here"),
        ("  s3://logs/a", "may not read s3://logs"),
        ("s3a://logs/a", "may not read s3://logs"),
        ("s3n://logs/a", "may not read s3://logs"),
    ],
)
def test_a_message_without_rows_says_so_and_ends_alone(give, on_each, param, says):
    whole = give("m1", "log", b"a line\n")
    (odd := give("m2", "log", b"")).folder.joinpath("attach/log").unlink()
    odd = Given("m2", odd.folder, {"param1": param})
    for q in on_each(lambda q: q.lines().count(), [whole, odd]):
        assert q.ids == ["m1"]
        verb, why = q.endings["m2"]
        assert verb is Verb.ERR
        assert says in why


def test_a_job_may_take_messages_that_bring_nothing(give, on_each):
    messages = [
        give("m1", "log", b"a line\n"),
        Given("m2", give("m2", "x", b"").folder),
    ]
    (messages[1].folder / "attach/x").unlink()

    def take(q):
        assert q.lines(allow_empty=True).count() == 1

    for q in on_each(take, messages):
        assert q.ids == ["m1", "m2"]


@pytest.mark.parametrize("key", ["a.gz", "logs/"])
def test_a_bucket_that_is_not_there_is_named(store, key):
    end, host = store
    may = remote.allow(["s3://none/", host])

    def read():
        for where in remote.below(f"s3://none/{key}{end}", may):
            remote.stream(where, may)

    with pytest.raises(BadInput, match=r"^there is no bucket none$"):
        read()
