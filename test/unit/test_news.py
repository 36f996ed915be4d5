"""What a queue remembers of what it has told."""

import pytest

from rq.spool.news import Group, News


@pytest.mark.parametrize(
    ("now", "is_over"),
    [(999.0, True), (1000.0, False), (1059.9, False), (1060.0, True)],
)
def test_a_matter_is_told_again_after_its_time_and_when_the_clock_went_back(
    now, is_over
):
    assert Group(at=1000.0).is_over(now, 60.0) is is_over


def test_how_long_a_success_takes_is_known_of_ten():
    news = News()
    for number in range(9):
        news.take({"ev": "finish", "ts": 5_000_000, "run_us": number * 1_000_000})
    assert news.median is None
    news.take({"ev": "fail", "ts": 6_000_000, "run_us": 1})
    assert (news.median, news.succeeded) == (None, 5.0)
    news.take({"ev": "finish", "ts": 7_000_000, "run_us": 9_000_000})
    assert (news.median, news.succeeded) == (4.5, 7.0)


def test_of_a_matter_a_line_changes_what_it_says_and_a_new_telling_all():
    news = News()
    news.take({"ev": "news", "news": {"groups": {"err": {"at": 10.0, "more": 3}}}})
    news.take({"ev": "news", "news": {"groups": {"err": {"more": 4}}, "failing": 9.0}})
    assert news.groups["err"] == Group(10.0, 4)
    news.take({"ev": "news", "news": {"groups": {"err": {"at": 70.0}}}})
    assert (news.groups["err"], news.failing) == (Group(70.0), 9.0)
    assert News(news.to_json()).to_json() == news.to_json()
