"""The plan of a flow: what is refused, in which sentence, and in which order it is sent."""

from __future__ import annotations

import random

import pytest

from rq.errors import BadInput
from rq.flow import plan as plans

ID = "20260102.0304.05.006.1600000000007"
FETCH = {"name": "fetch", "dest": "fetch"}


def node(name: str, *after: str, **more: object) -> dict[str, object]:
    return {"name": name, "dest": "work", "after": list(after), **more}


def names_of(plan: plans.Plan) -> list[list[str]]:
    return [[node.name for node in layer] for layer in plan.layers]


def test_a_plan_is_a_list_or_an_object_with_a_name_and_a_key() -> None:
    messages = [node("pack", "fetch"), FETCH]
    plain = plans.parse(messages)
    named = plans.parse({"messages": messages, "name": "nightly", "key": "k 1"})
    assert names_of(plain) == names_of(named) == [["fetch"], ["pack"]]
    assert (plain.name, plain.key, named.name, named.key) == (
        "",
        None,
        "nightly",
        "k 1",
    )
    assert plain.edges == 1
    assert plain.queues == ["fetch", "work"]


def test_a_plan_survives_being_written_and_read() -> None:
    messages = [node("b", "a", f"other/{ID}", param1={"x": [1]}), node("a", priority=3)]
    plan = plans.parse({"messages": messages, "name": "two"})
    assert plans.parse(plan.to_json()) == plan
    assert plan.nodes[1].others == (f"other/{ID}",)


def test_a_message_for_another_host_goes_through_the_relay() -> None:
    plan = plans.parse([{"name": "far", "dest": "http://h:3333/q/mail"}])
    assert plan.nodes[0].queue == "relay"
    assert plan.queues == ["relay"]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({}, "a flow is a list of messages"),
        ("x", "a flow is a list of messages"),
        ([], "this flow has no messages"),
        ({"messages": [FETCH], "title": 1}, "'title' is no part of a flow"),
        ({"messages": [FETCH], "name": 1}, "name is no text"),
        ({"messages": [FETCH], "key": ""}, "key is not 1 to 200"),
        ({"messages": [FETCH], "key": "a\tb"}, "key is not 1 to 200"),
        ([3], "message 1 of the flow is no JSON object"),
        ([{"dest": "a"}], "message 1 of the flow has no name"),
        ([{"name": "a/b", "dest": "a"}], "cannot be called 'a/b'"),
        ([{"name": "self", "dest": "a"}], "cannot be called 'self'"),
        ([{"name": "n" * 101, "dest": "a"}], "cannot be called"),
        ([{"name": "a\n", "dest": "a"}], "cannot be called"),
        ([FETCH, FETCH], "two messages of the flow are called fetch"),
        ([{"name": "a"}], "a has no dest"),
        ([{"name": "a", "dest": "../b"}], "a: queue name has invalid characters"),
        ([{"name": "a", "dest": "q", "prio": 3}], "a: 'prio' is no field of a message"),
        ([{"name": "a", "dest": "q", "_key": "k"}], "a: _key is RQ's"),
        ([{"name": "a", "dest": "q", "due": "soon"}], "a: due is not epoch seconds"),
        ([{"name": "a", "dest": "q", "after": "b"}], "a: after is no list of names"),
        ([node("a", "b")], "a waits for 'b', and no message of the flow is called so"),
        ([node("a", "b/c")], "which is no name of this flow and no QUEUE/ID"),
        ([node("a", "a")], "a waits for itself"),
        (
            [node("a"), node("b", "c"), node("c", "d"), node("d", "b")],
            "circle: b after",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(value: object, sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        plans.parse(value)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_circle_is_named_without_what_only_leads_to_it() -> None:
    with pytest.raises(BadInput) as caught:
        plans.parse([node("x", "b"), node("b", "c"), node("c", "b")])
    assert str(caught.value).endswith("in a circle: b after c after b")


def test_the_bounds_hold() -> None:
    with pytest.raises(BadInput, match="10,001 messages"):
        plans.parse([node(f"n{at}") for at in range(plans.MOST_NODES + 1)])
    names = [f"n{at}" for at in range(500)]
    wide = [*map(node, names), *(node(f"w{at}", *names) for at in range(401))]
    with pytest.raises(BadInput, match="200,500 names"):
        plans.parse(wide)
    assert plans.parse(wide[:-1]).edges == plans.MOST_EDGES


def random_messages(seed: int) -> list[dict[str, object]]:
    chance = random.Random(seed)
    names = [f"n{at}" for at in range(chance.randint(1, 60))]
    messages = [
        node(name, *chance.sample(names[:at], chance.randint(0, min(at, 4))))
        for at, name in enumerate(names)
    ]
    chance.shuffle(messages)
    return messages


@pytest.mark.parametrize("seed", range(40))
def test_each_message_stands_behind_all_that_it_waits_for(seed: int) -> None:
    plan = plans.parse(random_messages(seed))
    earlier = set[str]()
    for layer in plan.layers:
        for each in layer:
            assert earlier.issuperset(each.after)
        earlier |= {each.name for each in layer}
    assert len(earlier) == len(plan.nodes)


@pytest.mark.parametrize("seed", range(20))
def test_a_part_is_a_node_and_all_behind_it(seed: int) -> None:
    plan = plans.parse(random_messages(seed))
    ids = {each.name: f"work/{ID[:-1]}{at}" for at, each in enumerate(plan.nodes)}
    start = plan.nodes[len(plan.nodes) // 3].name
    part = plans.part_from(plan, start, ids)
    behind = {start}
    for each in plan.nodes:
        if behind & set(each.after):
            behind.add(each.name)
    assert {each.name for each in part.nodes} == behind
    whole = {each.name: each for each in plan.nodes}
    for each in part.nodes:
        before = [ids[name] for name in whole[each.name].after if name not in behind]
        assert list(each.others) == before
        assert set(each.after) == set(whole[each.name].after) & behind


def test_a_part_needs_a_node_of_the_flow() -> None:
    with pytest.raises(BadInput, match="no message called 'x'"):
        plans.part_from(plans.parse([FETCH]), "x", {})


def test_webhooks_of_a_flow_are_kept_with_its_plan() -> None:
    hook = "https://shop.example/hook"
    plan = plans.parse(
        {"messages": [{"name": "a", "dest": "b"}], "post_run_webhook": [hook]}
    )
    assert plan.webhooks == (hook,)
    assert plans.parse(plan.to_json()).webhooks == (hook,)
    assert plans.part_from(plan, "a", {}).webhooks == (hook,)
    for wrong in ("ftp://x", ["x"], 3):
        with pytest.raises(BadInput):
            plans.parse(
                {"messages": [{"name": "a", "dest": "b"}], "post_run_webhook": wrong}
            )
