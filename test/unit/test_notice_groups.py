"""What is counted of a matter, and told together, is told once."""

from rq.config.notices import Matter
from rq.queues.delivery.notices import Telling
from rq.spool.news import News

NOTICE = {"mail": ["ops@example.org"], "webhook": [], "queue": "", "every": 10.0}
COUNTED = {"at": 1000.0, "more": 2, "first": {"queue": "t", "msg_id": "first"}}
NOW = 2000.0


def test_what_comes_as_the_rest_is_told_is_counted_anew():
    news = News({"groups": {"slow": COUNTED}})
    telling = Telling(news, NOW)
    telling.say_rest("slow", NOTICE, news.groups["slow"])
    for name in ("next", "last"):
        telling.say(Matter.SLOW, NOTICE, {"queue": "t", "msg_id": name})
    news.take({"ev": "news", "news": telling.change})
    group = news.groups["slow"]
    assert len(telling.out) == 1
    assert (group.at, group.more, group.first["msg_id"]) == (NOW, 2, "next")
