"""What `rq up` says of queues that take no messages."""

from rq.cli.up import by_reason


def test_each_reason_is_told_once_with_all_whom_it_keeps():
    full = "the disk is full: {} free, and RQ keeps 64.0 MiB"
    closed = {"a": full.format("10 B"), "b": "stopping", "c": full.format("1.5 MiB")}
    assert by_reason(closed) == [(["a", "c"], full.format("10 B")), (["b"], "stopping")]


def test_the_word_for_copied_queues_speaks_for_all_of_them():
    why = "it was copied: nothing starts until `rq restore accept {}` says what it is"
    closed = {name: why.format(name) for name in ("a", "b")}
    told = "it was copied: nothing starts until `rq restore accept` says what it is"
    assert by_reason(closed) == [(["a", "b"], told)]
    assert by_reason({}) == []
