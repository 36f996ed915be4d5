"""The clients of one file where a program holds them wrong: each says so, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness.receiver import receiver
from harness.waiting import wait_until
from process.test_clients import PROGRAMS, place, rq, run

from rq.builtin.flow import door
from rq.flow.plan import parse
from rq.layout import Root

__all__ = ["place", "rq"]  # fixtures

# ---- a flow that does not begin

FLOWS = {
    "python": """
import os, rq_client
rq = rq_client.Client()
view = rq.wait_flow(os.environ["FLOW"], timeout=60)
print(view["mark"], view["text"])
late = rq.send_flow([{"name": "pay", "dest": "debug", "due": 4e9}]).msg_id
try:
    rq.wait_flow(late, timeout=3)
except rq_client.RQError as error:
    print(str(error).replace(late, "F"))
rq.cancel_flow(late)
""",
    "js": """
import { Client } from "./rq_client.js";
const rq = new Client();
const view = await rq.waitFlow(process.env.FLOW, { timeout: 60 });
console.log(view.mark, view.text);
const late = (await rq.sendFlow([{ name: "pay", dest: "debug", due: 4e9 }])).msg_id;
await rq.waitFlow(late, { timeout: 3 }).catch(({ message }) => console.log(message.replace(late, "F")));
await rq.cancelFlow(late);
""",
    "php": """<?php
require "rq_client.php";
$rq = new RQClient();
$view = $rq->waitFlow(getenv("FLOW"), timeout: 60);
echo "{$view["mark"]} {$view["text"]}\\n";
$late = $rq->sendFlow([["name" => "pay", "dest" => "debug", "due" => 4e9]])["msg_id"];
try {
    $rq->waitFlow($late, timeout: 3);
} catch (RQError $error) {
    echo str_replace($late, "F", $error->getMessage()), "\\n";
}
$rq->cancelFlow($late);
""",
    "sh": """
. ./rq_client.sh
mark=$(rq_wait_flow "$FLOW" 60 2>why) || [ $? = 8 ]
echo "$mark $(sed "s/^rq: flow $FLOW: //; s/ (failed)$//" why)"
late=$(echo '{"messages": [{"name": "pay", "dest": "debug", "due": 4e9}]}' | rq_send_flow)
rq_wait_flow "$late" 3 2>why || [ $? = 7 ]
sed "s/^rq: //; s/$late/F/" why
rq_cancel_flow "$late"
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("language", PROGRAMS)
def test_a_flow_that_is_not_begun_has_failed_and_says_why(language, place, rq):
    # What no queue takes is refused when it is sent: this is of a queue that went just after.
    plan = parse([{"name": "pay", "dest": "gone"}])
    flow = door.make(Root(Path(rq["RQ_ROOT"])), plan, {}).msg_id
    admin = {**rq, "RQ_TOKEN": rq["RQ_TOKEN_OF_ADMIN"], "FLOW": flow}
    assert run(language, FLOWS[language], place, admin).splitlines() == [
        "failed it was not begun, and none of its messages ran: pay: queue gone: there is no "
        "such queue",
        "flow F has not ended after 3 s: 1 ready (timeout)",
    ]


# ---- a flow that is cancelled while it runs

CANCELLED = {
    "python": """
import rq_client
rq = rq_client.Client()
flow = rq.send_flow([
    {"name": "pay", "dest": "steps"},
    {"name": "ship", "dest": "greet", "param1": "Lou", "after": ["pay"]},
]).msg_id
seen = []
def look(view):
    if view["nodes"][0].get("text") == "2 of 2" and not seen:
        seen.append(view["sums"]["waits"])
        rq.cancel_flow(flow)
view = rq.wait_flow(flow, timeout=60, on_progress=look)
print(*seen, view["mark"], view["sums"]["cancelled"], *[n["mark"] for n in view["nodes"]])
""",
    "js": """
import { Client } from "./rq_client.js";
const rq = new Client();
const { msg_id: flow } = await rq.sendFlow([
  { name: "pay", dest: "steps" },
  { name: "ship", dest: "greet", param1: "Lou", after: ["pay"] },
]);
const seen = [];
const onProgress = ({ sums, nodes }) => {
  if (nodes[0].text === "2 of 2" && !seen.length) seen.push(sums.waits, rq.cancelFlow(flow));
};
const view = await rq.waitFlow(flow, { timeout: 60, onProgress });
await seen[1];
console.log(seen[0], view.mark, view.sums.cancelled, ...view.nodes.map(({ mark }) => mark));
""",
    "php": """<?php
require "rq_client.php";
$rq = new RQClient();
$flow = $rq->sendFlow([
    ["name" => "pay", "dest" => "steps"],
    ["name" => "ship", "dest" => "greet", "param1" => "Lou", "after" => ["pay"]],
])["msg_id"];
$seen = [];
$look = function ($view) use ($rq, $flow, &$seen) {
    if (($view["nodes"][0]["text"] ?? "") === "2 of 2" && !$seen) {
        $seen[] = $view["sums"]["waits"];
        $rq->cancelFlow($flow);
    }
};
$view = $rq->waitFlow($flow, timeout: 60, onProgress: $look);
$marks = array_column($view["nodes"], "mark");
echo implode(" ", [...$seen, $view["mark"], $view["sums"]["cancelled"], ...$marks]), "\\n";
""",
    "sh": """
. ./rq_client.sh
flow=$(rq_send_flow <<PLAN
{"messages": [{"name": "pay", "dest": "greet", "param1": "Kim", "param2": "600"},
 {"name": "ship", "dest": "greet", "param1": "Lou", "after": ["pay"]}]}
PLAN
)
until sums=$(rq_flow "$flow" | rq_field sums) && printf '%s' "$sums" | rq_field runs >/dev/null; do
    sleep 0.2
done
rq_cancel_flow "$flow"
mark=$(rq_wait_flow "$flow" 60 2>why) || [ $? = 8 ]
view=$(rq_flow "$flow")
ended=$(printf '%s' "$view" | rq_field sums | rq_field cancelled)
marks=$(printf '%s' "$view" | rq_field nodes | grep -o '"mark":"[a-z]*"' | cut -d '"' -f 4 | paste -sd ' ')
echo "$(printf '%s' "$sums" | rq_field waits) $mark $ended $marks"
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("language", PROGRAMS)
def test_a_flow_shows_its_progress_and_is_cancelled_while_it_runs(language, place, rq):
    said = "1 cancelled 2 cancelled cancelled\n"
    assert run(language, CANCELLED[language], place, rq) == said


# ---- a whole plan, of which a webhook tells

WHOLE = {
    "python": """
import os, rq_client
plan = [{"name": "pay", "dest": "greet", "param1": "Kim"}]
whole = {"name": "order 4711", "post_run_webhook": [os.environ["HOOK"]], "messages": plan}
print(rq_client.Client().send_flow(whole).msg_id)
""",
    "js": """
import { Client } from "./rq_client.js";
const messages = [{ name: "pay", dest: "greet", param1: "Kim" }];
const whole = { name: "order 4711", post_run_webhook: [process.env.HOOK], messages };
console.log((await new Client().sendFlow(whole)).msg_id);
""",
    "php": """<?php
require "rq_client.php";
$plan = [["name" => "pay", "dest" => "greet", "param1" => "Kim"]];
$whole = ["name" => "order 4711", "post_run_webhook" => [getenv("HOOK")], "messages" => $plan];
echo (new RQClient())->sendFlow($whole)["msg_id"], "\\n";
""",
    "sh": """
. ./rq_client.sh
rq_send_flow <<PLAN
{"name": "order 4711", "post_run_webhook": ["$HOOK"],
 "messages": [{"name": "pay", "dest": "greet", "param1": "Kim"}]}
PLAN
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("language", PROGRAMS)
def test_a_whole_plan_is_sent_with_its_name_and_webhook(language, place, rq):
    with receiver() as web:
        flow = run(language, WHOLE[language], place, {**rq, "HOOK": web.url()}).strip()
        wait_until(lambda: web.heard)
    result = json.loads(json.loads(web.heard[0].body)["data"]["outcome"]["result"])
    assert (result["flow"], result["name"]) == (flow, "order 4711")


# ---- a token with an end of line

ASKING = {
    "python": """
import os, rq_client
try:
    rq = rq_client.Client(token=os.environ["RQ_TOKEN"])
    print("sent to", rq.send("debug", key="edge").queue)
except rq_client.RQError as error:
    print(error)
""",
    "js": """
import { Client } from "./rq_client.js";
try {
  const rq = new Client({ token: process.env.RQ_TOKEN });
  console.log("sent to", (await rq.send("debug", {}, { key: "edge" })).queue);
} catch (error) {
  console.log(error.message);
}
""",
    "php": """<?php
require "rq_client.php";
try {
    $rq = new RQClient(token: getenv("RQ_TOKEN"));
    echo "sent to ", $rq->send("debug", key: "edge")["queue"], "\\n";
} catch (RQError $error) {
    echo $error->getMessage(), "\\n";
}
""",
    "sh": """
. ./rq_client.sh
if id=$(rq_send debug --key edge 2>why); then
    [ -n "$id" ] && echo "sent to debug"
else
    sed 's/^rq: //' why
fi
""",
}
REFUSED = (
    "the token holds a blank or control character, or is not ASCII: see RQ_TOKEN "
    "(bad_input)\n"
)


@pytest.mark.parametrize("language", PROGRAMS)
def test_blanks_around_a_token_are_no_part_of_it(language, place, rq):
    env = {**rq, "RQ_TOKEN": f" \t{rq['RQ_TOKEN']}\r\n"}
    assert run(language, ASKING[language], place, env) == "sent to debug\n"


@pytest.mark.parametrize("language", PROGRAMS)
@pytest.mark.parametrize("inner", ["\n", "\r\nX-Other: 1", "\t", "\x7f", "\u00e4"])
def test_a_token_that_no_header_holds_is_refused_and_not_shown(
    language, inner, place, rq
):
    env = {**rq, "RQ_TOKEN": f"rq_secret{inner}end"}
    assert run(language, ASKING[language], place, env) == REFUSED


# ---- the secret and the body of a webhook

# Each reads the file `secrets`, verifies the webhook beside it, and prints what it hears.
VERIFYING = {
    "python": """
import json, rq_client
headers, body = json.load(open("headers.json")), open("body", "rb").read()
try:
    event = rq_client.verify_webhook(open("secrets").read(), headers, body, tolerance=1e9)
    print(event["type"])
except rq_client.RQError as error:
    print(error)
""",
    "js": """
import { readFileSync } from "node:fs";
import { verifyWebhook } from "./rq_client.js";
const headers = JSON.parse(readFileSync("headers.json"));
const secret = readFileSync("secrets", "utf8");
await verifyWebhook(secret, headers, readFileSync("body"), { tolerance: 1e9 })
  .then(({ type }) => console.log(type), (error) => console.log(error.message));
""",
    "php": """<?php
require "rq_client.php";
$headers = json_decode(file_get_contents("headers.json"), true);
try {
    $secret = file_get_contents("secrets");
    echo rq_verify_webhook($secret, $headers, file_get_contents("body"), 1e9)["type"], "\\n";
} catch (RQError $error) {
    echo $error->getMessage(), "\\n";
}
""",
    "sh": """
. ./rq_client.sh
header() { rq_field "$1" <headers.json; }
if rq_verify_webhook "$(cat secrets)" "$(header webhook-id)" "$(header webhook-timestamp)" \\
    "$(header webhook-signature)" 999999999 <body 2>why; then
    rq_field type <body
else
    sed 's/^rq: //' why
fi
""",
}
OTHER = "whsec_" + "QUFB" * 8
WRONG = (
    "the secret of webhooks is wrong: it is whsec_ and base64, and the lines of "
    "config/webhook.secret have it (bad_input)\n"
)


@pytest.mark.parametrize("language", PROGRAMS)
@pytest.mark.parametrize("form", ["{0}\n{1}\n", "{1}\n{0}", "# new\n{0}\r\n\n {1} \n"])
def test_a_file_of_several_secrets_is_taken_as_it_is(language, form, place, rq):
    (place / "secrets").write_text(form.format(OTHER, rq["RQ_WEBHOOK_SECRET"]))
    assert run(language, VERIFYING[language], place, rq) == "message.done\n"


@pytest.mark.parametrize("language", PROGRAMS)
def test_another_secret_has_not_signed(language, place, rq):
    (place / "secrets").write_text(OTHER)
    said = "this webhook is not signed with our secret (bad_signature)\n"
    assert run(language, VERIFYING[language], place, rq) == said


@pytest.mark.parametrize("language", PROGRAMS)
@pytest.mark.parametrize(
    "secret",
    ["", "\n", "whsec_", "hunter2", "whsec_QUFBQ", "whsec_hunter-2", f"{OTHER}\nx"],
)
def test_a_secret_that_is_none_is_named_and_not_shown(language, secret, place, rq):
    (place / "secrets").write_text(secret)
    assert run(language, VERIFYING[language], place, rq) == WRONG


BODIES = {
    "python": """
import json, os, rq_client
headers, body = json.load(open("headers.json")), open("body", "rb").read()
for given in (body.decode(), json.loads(body), None):
    try:
        secret = os.environ["RQ_WEBHOOK_SECRET"]
        print(rq_client.verify_webhook(secret, headers, given, tolerance=1e9)["type"])
    except rq_client.RQError as error:
        print(error)
try:
    rq_client.verify_webhook(os.environ.get("NO_SUCH"), headers, body)
except rq_client.RQError as error:
    print(error.kind)
""",
    "js": """
import { readFileSync } from "node:fs";
import { verifyWebhook } from "./rq_client.js";
const [headers, body] = [JSON.parse(readFileSync("headers.json")), readFileSync("body")];
for (const given of [body.toString(), JSON.parse(body), undefined])
  await verifyWebhook(process.env.RQ_WEBHOOK_SECRET, headers, given, { tolerance: 1e9 })
    .then(({ type }) => console.log(type), (error) => console.log(error.message));
await verifyWebhook(process.env.NO_SUCH, headers, body).catch(({ kind }) => console.log(kind));
""",
}


@pytest.mark.parametrize("language", BODIES)
def test_a_body_is_text_or_bytes_and_no_object(language, place, rq):
    said = "the body of a webhook is wanted as its bytes came, before JSON is read"
    assert run(language, BODIES[language], place, rq).splitlines() == [
        "message.done",
        f"{said} (bad_input)",
        f"{said} (bad_input)",
        "bad_input",
    ]
