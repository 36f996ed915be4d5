"""Tells that a flow as a whole has ended, by a message of the queue `flow` behind all others.

The message F that sends a flow has ended once all is sent, so its own webhooks say nothing
of the flow but that it was not begun. A flow with `post_run_webhook` has one more message:
E, of the queue `flow` too, which F sends last. It waits for F and, whatever becomes of
them, for the messages of the flow; when it runs it looks at the flow, and its end is what
the webhooks tell. So each call is owed, signed and tried again as any other, and a crash
neither loses nor doubles it.

E may be woken early: it waits for few of the messages where the others end before these,
and one that a person removes ends nothing before it. So E looks itself whether the flow
has ended, and asks to run later if it has not.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from rq.builtin.flow import look
from rq.builtin.flow.record import END, QUEUE
from rq.flow import marks
from rq.flow.plan import Node, Plan
from rq.layout import Root
from rq.message import after, fieldnames
from rq.message.after import Fail, Rule
from rq.scripts import python as script
from rq.scripts.pipe import Verb
from rq.words.nesting import Json

_OF = "param2"  # F, of E alone
_PAUSE = 5  # seconds until it looks again


def of_env(env: Mapping[str, str]) -> str:
    """Return the flow whose end a message of the queue `flow` tells; "": it sends one."""
    return env.get(f"RQ_{_OF.upper()}", "")


def request(
    msg_id: str, plan: Plan, sent: Mapping[str, str], by: str
) -> dict[str, Json]:
    """Return E, as it is sent for the flow `msg_id`; `sent`: its messages by name."""
    waits = [sent[node.name] for node in _last(plan)][: after.MOST - 1]
    return {
        "dest": QUEUE,
        "param1": plan.name,
        _OF: msg_id,
        "param3": f"tells its webhooks when flow {msg_id} has ended",
        "after": [f"{QUEUE}/{msg_id}", *waits],
        "after_rule": str(Rule.ENDED),
        "post_run_webhook": [*plan.webhooks],
        fieldnames.KEY: f"{fieldnames.FLOW_KEY}{msg_id}/{END}",
        fieldnames.BY: by,
    }


def _last(plan: Plan) -> list[Node]:
    """Return the messages of which no other waits for the end, however they end."""
    waited = {name for node in plan.nodes if _waits_long(node) for name in node.after}
    return [node for node in plan.nodes if node.name not in waited]


def _waits_long(node: Node) -> bool:
    rule = node.message.get("after_rule") or Rule.DONE
    fail = node.message.get("after_fail") or Fail.HOLD
    return rule != Rule.DONE or fail == Fail.HOLD


def tell(root: Root, msg_id: str) -> None:
    """Say how a flow has ended, or that it is to be looked at later."""
    flow = look.flow_of(root, msg_id)
    counted = marks.sums(map(flow.mark_of, flow.plan.nodes))
    said = marks.in_words(counted)
    if not marks.has_ended(counted):
        script.say(Verb.LATER, f"{_PAUSE}-flow {msg_id} has not ended: {said}")
        return
    mark = marks.of_flow(flow.state, counted)
    result = {
        "flow": msg_id,
        "name": flow.plan.name,
        "mark": mark,
        "text": said,
        "sums": {str(each): number for each, number in counted.items()},
    }
    script.say(Verb.RESULT, orjson.dumps(result).decode())
    script.say(Verb.DONE, f"flow {msg_id} {mark}: {said}")
