"""The directories of agents: one for each queue, whatever host it is behind."""

from rq.outbound import peers
from rq.work.place import open_place


def test_queues_of_two_rqs_behind_one_proxy_share_no_directory(tmp_path):
    """What one could not be told would be told to the other, and be lost."""
    urls = ("http://h:3333/q/far", "http://h:3333/x/q/far", "http://h:3333/y/q/far",
            "http://h:3333/q/x_far", "http://h:3333/x/y/q/far")  # fmt: skip
    for url in urls:
        open_place(tmp_path, peers.target(url)).close()
    assert len(list(tmp_path.iterdir())) == len(urls)


def test_an_agent_goes_on_in_the_directory_of_the_one_before(tmp_path):
    to = peers.target("http://h:3333/x/q/far")
    first = open_place(tmp_path, to)
    beside = open_place(tmp_path, to)
    first.close()
    again = open_place(tmp_path, to)
    assert (again.path, beside.path.name) == (first.path, "1")
    beside.close()
    again.close()
