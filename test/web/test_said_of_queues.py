"""What a page says of what waits, of slots and of a search is what is so."""

import pytest
from harness.queues import RunningQueue, kept
from harness.waiting import wait_until
from harness.web_server import web_alone

pytestmark = pytest.mark.process

GATE = "#!/bin/sh\nwhile [ ! -e $RQ_PARAM1 ]; do sleep 0.05; done\necho done >&3\n"

HOLDS = '#!/bin/sh\nwhile [ ! -e "$HOLDS" ]; do sleep 0.05; done\necho done >&3\n'


def of(web, tab):
    """Return the rows of a tab, by message."""
    (section,) = web.get(f"/q/t/queue.json?state={tab}").json["sections"]
    return {one["msg_id"]: one["text"] for one in section["rows"]}


def test_a_message_in_a_queue_that_is_paused_does_not_start_by_itself(tmp_path):
    with kept(RunningQueue(tmp_path, "t", GATE)) as queue, web_alone(tmp_path) as web:
        queue.root.pause("t").touch()
        queue.ask("wake")
        msg_id = queue.send(param1="/")
        story = queue.get(msg_id)["story"]
        assert story["why"].startswith("The queue is paused since ")
        assert story["todo"] == "`rq queue resume t` lets it go on."
        assert "starts by itself" not in web.page(f"/q/t/{msg_id}")
        assert of(web, "que") == {msg_id: story["why"]}
        queue.root.pause("t").unlink()
        queue.ask("wake")
        queue.ended(msg_id)


@pytest.mark.slow
def test_what_is_blocked_is_not_next(tmp_path):
    settings = {"num_workers": 4, "blocking_params": [1]}
    gate = tmp_path / "gate"
    made = RunningQueue(tmp_path, "t", GATE, **settings)
    with kept(made) as queue, web_alone(tmp_path) as web:
        first = queue.send(param1=str(gate))
        queue.until(first, "run")
        others = [queue.send(param1=str(gate)) for _ in range(2)]
        said = f"{first} is running, with equal blocking_params."
        assert of(web, "que") == dict.fromkeys(others, said)
        gate.touch()
        for one in others:
            queue.ended(one)


@pytest.mark.slow
def test_a_batch_takes_one_slot_however_many_messages_are_in_it(tmp_path):
    gate = tmp_path / "gate"
    settings = {"num_workers": 2, "env_vars": {"HOLDS": str(gate)}}
    made = RunningQueue(
        tmp_path, "t", HOLDS, batch={"max": 5, "wait": 3600}, **settings
    )
    with kept(made) as queue, web_alone(tmp_path) as web:
        ids = [queue.send() for _ in range(5)]
        wait_until(lambda: queue.ok("detail")["counts"]["run"] == 5)
        assert queue.ok("detail")["slots_used"] == 1
        assert "1 of 2 slots in use by 5 messages" in web.page("/q/t")
        assert "1 of 2 slots in use" in web.page("/")
        gate.touch()
        for one in ids:
            queue.ended(one)
        wait_until(lambda: queue.ok("detail")["slots_used"] == 0)


@pytest.mark.slow
def test_a_search_says_how_far_it_looked(tmp_path):
    made = RunningQueue(tmp_path, "t", GATE)
    with kept(made) as queue, web_alone(tmp_path) as web:
        oldest = queue.send(due=4e9, param1="the oldest of all")
        txn = queue.ok("open_txn", {})["txn"]
        asked = {"txn": txn, "messages": [{"due": 4e9}] * 500}
        ids = queue.ok("prepare_txn", asked)
        queue.ok("commit_txn", {"txn": txn, "ids": ids})
        wait_until(lambda: queue.ok("detail")["counts"]["que"] == 501)
        looked = {"": "of each state", "&state=que": "messages here"}
        for tab, where in looked.items():
            page = web.page(f"/q/t?find=the+oldest{tab}")
            assert f"None of the newest 500 {where} contains “the oldest”" in page
            assert "Older ones were not searched" in page
            assert "No message contains" not in page
        (section,) = web.get("/q/t/queue.json?state=que&find=the+oldest").json[
            "sections"
        ]
        path = f"/q/t?state=que&find=the+oldest&after={section['next']}"
        assert f'href="/q/t/{oldest}"' in web.page(path)
        page = web.page("/q/t?state=err&find=nothing")
        assert "No message contains “nothing”." in page
