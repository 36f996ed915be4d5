"""What `rq up` says of queues that take no messages."""

from rq.cli.full_disk import by_reason


def test_each_reason_is_told_once_with_all_whom_it_keeps():
    full = "the disk is full: {} bytes free, 67108864 kept"
    closed = {"a": full.format(10), "b": "stopping", "c": full.format(20)}
    assert by_reason(closed) == [(["a", "c"], full.format(10)), (["b"], "stopping")]


def test_the_word_for_copied_queues_speaks_for_all_of_them():
    why = "it was copied: nothing starts until `rq restore accept {}` says what it is"
    closed = {name: why.format(name) for name in ("a", "b")}
    told = "it was copied: nothing starts until `rq restore accept` says what it is"
    assert by_reason(closed) == [(["a", "b"], told)]
    assert by_reason({}) == []
