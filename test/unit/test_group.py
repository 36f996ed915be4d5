"""Failures are alike by their cause, and by what their texts have in common."""

import pytest

from rq.message.group import LENGTH, group, wording

ALIKE = [
    ("timeout after 30 s", "timeout after 1,800.5 s"),
    ("no such file: /srv/in/a.csv", "no such file: /srv/out/b.csv"),
    ("no such file: ../a.csv/x", "no such file: /x"),
    ("key 'order 17' is missing", "key 'customer' is missing"),
    ('key "a" is missing', 'key "b c" is missing'),
    ("locked by 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "locked by 77"),
    ("at 0xdeadBEEF", "at 0x1"),
    (
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 failed",
        "commit 12345678a failed",
    ),
    ("since 2026-01-02 03:04:05.678+01:00", "since 2025-12-31T23:59:59Z"),
    ("message 20260102.0304.05.006.7 waits", "message 20270203.0405.06.007.1234 waits"),
    ("https://a.example/x?y=1 said 500", "https://a.example/z said 502"),
    ("two  blanks\nand a line", "two blanks and a line"),
]
DIFFERENT = [
    ("timeout after 30 s", "no answer after 30 s"),
    ("https://a.example/x said 500", "https://b.example/x said 500"),
    ("it's here, it isn't there", "it's there, it isn't here"),
]


@pytest.mark.parametrize(("first", "second"), ALIKE)
def test_texts_of_the_same_failure_are_alike(first, second):
    assert group("exit", first) == group("exit", second)


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_texts_of_different_failures_are_not(first, second):
    assert group("exit", first) != group("exit", second)


def test_the_cause_counts():
    assert group("exit", "7") != group("signal", "7")
    assert group("exit", "7").startswith("exit-")


@pytest.mark.parametrize("text", sorted({text for pair in ALIKE for text in pair}))
def test_what_is_masked_stays_as_it_is(text):
    assert wording(wording(text)) == wording(text)


def test_only_the_beginning_counts():
    assert group("exit", "a" * LENGTH + "b") == group("exit", "a" * LENGTH + "c")


def test_a_name_is_kept_for_good():
    """People keep addresses with it."""
    assert group("exit", "status 3") == "exit-3b09e1d45e"
