"""How a flow stands, what a reader is told of it, and how it is drawn."""

from __future__ import annotations

import itertools

import pytest

from rq.flow import drawing, marks, text, view
from rq.flow.marks import Mark
from rq.flow.plan import parse
from rq.flow.view import Flow
from rq.replies.flow import FlowView

FAN = [
    {"name": "fetch", "dest": "fetch"},
    *({"name": f"p{at}", "dest": "work", "after": ["fetch"]} for at in range(200)),
    {"name": "merge", "dest": "merge", "after": [f"p{at}" for at in range(200)]},
    {"name": "mail", "dest": "mail", "after": ["merge", "fetch"]},
]
CHAIN = [
    {"name": f"n{at}", "dest": f"q{at % 3}", "after": [f"n{at - 1}"] if at else []}
    for at in range(10_000)
]


def known(
    messages: list[dict[str, object]],
    *states: str,
    sender: str = "done",
    said: str = "",
) -> Flow:
    plan, some = parse(messages), itertools.cycle(states)
    sent = {node.name: f"{node.queue}/{at}" for at, node in enumerate(plan.nodes)}
    return Flow(
        msg_id="20260102.0304.05.006.7",
        plan=plan,
        state=sender,
        said=said,
        sent=sent,
        states=dict(zip(sent.values(), some, strict=False)),
    )


def seen_by_all(flow: Flow) -> FlowView:
    return view.view(flow, lambda queue: True)


def plain(flow: FlowView, *, whole: bool = False) -> list[str]:
    return list(text.lines(flow, lambda words, colour: words, whole=whole))


@pytest.mark.parametrize(
    ("sender", "states", "mark"),
    [
        ("que", ["after"], Mark.UNSENT),
        ("run", ["after"], Mark.UNSENT),
        ("err", ["gone"], Mark.FAILED),
        ("dismissed", ["gone"], Mark.FAILED),
        ("gone", ["gone"], Mark.GONE),
        ("cancelled", ["gone"], Mark.CANCELLED),
        ("done", ["cancelled", "after"], Mark.CANCELLED),
        ("done", ["err", "cancelled"], Mark.FAILED),
        ("done", ["done", "after"], Mark.WAITS),
        ("done", ["err", "que"], Mark.RUNS),
        ("done", ["err", "after"], Mark.FAILED),
        ("done", ["done", "held"], Mark.HELD),
        ("done", ["done", "err"], Mark.FAILED),
        ("done", ["done", "not_run"], Mark.NOT_RUN),
        ("done", ["done", "gone", "relayed"], Mark.DONE),
        ("done", ["done"], Mark.DONE),
        ("done", ["gone"], Mark.GONE),
    ],
)
def test_a_flow_stands_as_its_messages_do(
    sender: str, states: list[str], mark: Mark
) -> None:
    assert seen_by_all(known(FAN, *states, sender=sender))["mark"] == mark


def test_what_was_cancelled_is_not_called_done() -> None:
    assert "gone" in seen_by_all(known(FAN, "gone"))["text"]
    some = seen_by_all(known(FAN[:2], "done", "gone"))
    assert (some["mark"], some["text"]) == (Mark.DONE, "1 done, 1 gone")


ROW = [
    {"name": "a", "dest": "q"},
    {"name": "b", "dest": "q", "after": ["a"]},
    {"name": "c", "dest": "q", "after": ["b"], "after_rule": "failed"},
]


@pytest.mark.parametrize(
    ("states", "awaited"),
    [
        (["run", "after", "after"], "q/0"),
        (["done", "after", "after"], "q/2"),  # the last in order of what waits
        (["done", "done", "done"], ""),
        (["err", "after", "after"], ""),  # a person decides
        (["done", "held", "after"], ""),
        (["done", "err", "after"], "q/2"),  # it runs in a moment
        (["cancelled", "not_run", "after"], "q/2"),
        (["done", "cancelled", "done"], ""),
    ],
)
def test_that_end_is_awaited_which_may_be_the_one_of_the_flow(
    states: list[str], awaited: str
) -> None:
    assert known(ROW, *states).awaited == awaited
    assert known(ROW, *states, sender="run").awaited.startswith("flow/")


def test_a_flow_that_was_not_begun_says_why() -> None:
    flow = seen_by_all(known(FAN, "gone", sender="err", said="queue pack is not there"))
    assert flow["text"].endswith("none of its messages ran: queue pack is not there")


def test_of_a_queue_that_is_not_seen_only_its_place_is_told() -> None:
    flow = known(FAN, "done", sender="err", said="work has a secret")
    told = view.view(flow, lambda queue: queue != "work")
    hidden = [each for each in told["nodes"] if each["mark"] == Mark.HIDDEN]
    assert len(hidden) == told["sums"][Mark.HIDDEN] == 200
    assert all(each.keys() == {"name", "mark", "layer", "after"} for each in hidden)
    shown = (
        str(told)
        + "".join(plain(told, whole=True))
        + str(drawing.picture(told["nodes"]))
    )
    assert "work" not in shown
    assert "p1" not in shown
    assert "secret" not in shown


def test_other_messages_of_a_queue_that_is_not_seen_are_not_named() -> None:
    other = "work/20260102.0304.05.006.7"
    flow = known([{"name": "a", "dest": "b", "after": [other]}], "done")
    assert view.view(flow, lambda queue: True)["nodes"][0]["after"] == [other]
    assert view.view(flow, lambda queue: queue == "b")["nodes"][0]["after"] == []


def test_in_a_terminal_a_long_layer_shows_what_failed_first() -> None:
    lines = plain(seen_by_all(known(FAN, *["done"] * 150, "err", *["after"] * 52)))
    assert len(lines) == 1 + text.MOST_SHOWN + 2
    assert lines[0].split() == ["1", "✓", "fetch", "done", "fetch/0"]
    assert "✗ p149" in lines[1]
    assert lines[12].strip() == "… 189 more: 149 done, 40 waiting"
    assert lines[-2].endswith("after p0, p1 and 198 more")
    whole = plain(seen_by_all(known(FAN, "done")), whole=True)
    assert len(whole) == len(FAN)


def test_a_wide_layer_is_one_box_with_its_sums() -> None:
    picture = drawing.picture(seen_by_all(known(FAN, "done", "err"))["nodes"])
    assert not picture.is_whole
    assert [box.label for box in picture.boxes] == [
        "fetch",
        "200 × work",
        "merge",
        "mail",
    ]
    many = picture.boxes[1]
    assert many.mark == Mark.FAILED
    assert [part.mark for part in many.parts] == [Mark.FAILED, Mark.DONE]
    assert many.parts[0].width > 5  # one that failed is seen among however many
    assert sum(part.width for part in many.parts) == pytest.approx(148, abs=0.2)
    assert len(picture.lines) == 4  # fetch to mail, too, past the other columns


def test_a_long_chain_is_a_few_columns() -> None:
    picture = drawing.picture(seen_by_all(known(CHAIN, "done"))["nodes"])
    assert len(picture.boxes) == 12
    assert len(picture.lines) == 11
    assert picture.boxes[0].label == "834 messages"


def test_small_graphs_have_a_box_for_each_message_and_none_covers_another() -> None:
    messages = [
        {"name": "a", "dest": "q"},
        {"name": "b", "dest": "q"},
        *({"name": f"c{n}", "dest": "q", "after": ["a"]} for n in range(5)),
        {"name": "d", "dest": "q", "after": ["b", "c0", "c4"]},
    ]
    picture = drawing.picture(seen_by_all(known(messages, "done"))["nodes"])
    assert picture.is_whole
    assert len(picture.boxes) == len(messages)
    for one, other in itertools.combinations(picture.boxes, 2):
        assert one.x != other.x or abs(one.y - other.y) >= 34
    for box in picture.boxes:
        assert 0 <= box.x <= picture.width - 172
        assert 0 <= box.y <= picture.height - 34


def test_boxes_stand_so_that_few_lines_cross() -> None:
    """Three chains side by side, of which the second layer is written the other way round."""
    messages = [
        *({"name": f"a{n}", "dest": "q"} for n in range(3)),
        *({"name": f"b{n}", "dest": "q", "after": [f"a{n}"]} for n in (2, 1, 0)),
    ]
    picture = drawing.picture(seen_by_all(known(messages, "done"))["nodes"])
    place = {box.label: box.y for box in picture.boxes}
    assert all(place[f"a{n}"] == place[f"b{n}"] for n in range(3))


def test_each_mark_has_a_look_of_its_own() -> None:
    assert set(marks.LOOKS) == set(Mark)
    assert len({look.shape for look in marks.LOOKS.values()}) == len(Mark)
