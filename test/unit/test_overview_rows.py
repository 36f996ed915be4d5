"""The overview of very many queues: it lists some, counts all, and costs as they are."""

import falcon.testing
import pytest
from harness.left_parked import detail
from harness.steps import lines

from rq.layout import Root
from rq.web.pages import facts, overview

MANY = 600


class Site:
    """All that a row without an answer is made of."""

    def __init__(self, root):
        self.root = root


@pytest.fixture
def site(tmp_path):
    return Site(Root(tmp_path))


def names(number):
    return [f"q{each}" for each in range(number)]


def status(number):
    every = ({"name": name, "kind": "queue", "state": "UP"} for name in names(number))
    return {"children": [*every]}


def rows(site, number):
    details = [detail(name) for name in names(number)]
    return facts._queue_rows(site, names(number), details, status(number))


def test_so_many_are_listed_and_the_others_are_counted(site):
    req = falcon.testing.create_asgi_req()
    every = {"queues": rows(site, MANY), "trouble": []}
    listed = overview._listed(req, every, "")
    assert len(listed["rows"]) + listed["not_listed"] == MANY
    assert listed["not_listed"] > 0
    few = overview._listed(req, every, "q59")
    assert (len(few["rows"]), few["not_listed"]) == (11, 0)


def test_their_rows_cost_in_proportion(site):
    small, large = (lines(lambda n=n: rows(site, n)) for n in (100, 200))
    assert large < 2.1 * small
