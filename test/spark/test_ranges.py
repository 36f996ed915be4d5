"""Large plain files are read in parts: each line once, with its number in the file."""

from __future__ import annotations

import bz2
import random

import pytest

from rq.spark import remote

attachments = pytest.importorskip("rq.spark.attachments")

from rq.spark import spark_tables  # noqa: E402
from rq.spark.attachments import File  # noqa: E402

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
        monkeypatch.setattr(spark_tables, "_BLOCK", rnd.choice((7, 64, 10**6)))
        texts = write(tmp_path / "log", rnd)
        size = rnd.choice((1, 50, 300, 3000))
        parts = spark_tables.parted([large(tmp_path / "log")], size)
        assert len(parts) > 1
        assert read(parts) == list(enumerate(texts, 1))
        assert sum(part.size for part in parts) == (tmp_path / "log").stat().st_size


def test_a_part_whose_bytes_look_compressed_is_read_as_text(tmp_path, monkeypatch):
    monkeypatch.setattr(spark_tables, "_BLOCK", 8)
    text = b"first line\nBZh9 is a line\n\x28\xb5\x2f\xfd another\n"
    (tmp_path / "log").write_bytes(text)
    parts = spark_tables.parted([large(tmp_path / "log")], 10)
    assert len(parts) == 3
    assert [number for number, _ in read(parts)] == [1, 2, 3]


def test_what_is_small_compressed_far_or_gone_stays_whole(tmp_path):
    (tmp_path / "log").write_bytes(b"a\n" * 50)
    (tmp_path / "log.bz2").write_bytes(bz2.compress(random.Random(1).randbytes(1000)))
    far = File("m1", "", "s3://b/log", "s3://b/log", 10**9)
    gone = File("m1", "", "gone", str(tmp_path / "gone"), 10**9)
    whole = [large(tmp_path / "log"), large(tmp_path / "log.bz2"), far, gone]
    assert spark_tables.parted(whole, 100) == whole


def test_many_tasks_read_one_file(spark, tmp_path):
    texts = write(tmp_path / "log", random.Random(2))
    frame = spark_tables.rows(spark, [large(tmp_path / "log")], part=2000)
    assert frame.rdd.getNumPartitions() > 3
    found = frame.select("msg_id", "src", "file", "lineno", "line").collect()
    of = ("m1", "web1", "a.log")
    assert sorted(found) == [(*of, *pair) for pair in enumerate(texts, 1)]
