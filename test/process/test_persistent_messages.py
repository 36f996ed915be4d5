"""Workers that stay: each message is told, ends and is logged as by a process of its own."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until

from rq.scripts import worker_protocol

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def once(root):
    with running_queue(root, name="once") as queue:
        yield queue


@pytest.fixture(scope="module")
def queue(root):
    with running_queue(root, "obey_on", name="stays", worker="persistent") as queue:
        yield queue


@pytest.fixture(scope="module")
def light(root):
    settings = {"worker": "persistent", "worker_dir": False}
    with running_queue(root, "obey_on", name="light", **settings) as queue:
        yield queue


ENDS = {
    "done": "echo done all good >&3",
    "done without a text": "echo done >&3",
    "relayed": "echo relayed http://x/q/y/1 >&3",
    "err": "echo err went wrong >&3",
    "fail": "echo fail went wrong >&3",
    "nothing": ":",
    "progress only": "echo run halfway >&3",
    "the first word counts, the last text is told": (
        "echo done one >&3; echo err two >&3; echo three >&3"
    ),
    "an unreadable resend": "echo resend soon >&3",
    "the last retry": "echo resend 0-again >&3",
    "exit 0 after a word": "echo done bye >&3; exit 0",
    "exit 3 after a word": "echo done bye >&3; exit 3",
    "exit 0 without a word": "exit 0",
    "a signal": "kill -9 $$",
    "err and a signal": "echo err sorry >&3; kill -9 $$",
}
FACTS = ("cause", "outcome", "exit", "signal", "attempt", "count", "job_status")


def ended(queue, **fields):
    message = queue.run(**fields)
    result = message["result"]
    return message["state"], {name: result.get(name) for name in FACTS}


@pytest.mark.parametrize("how", ENDS)
def test_a_message_ends_as_it_does_with_a_process_of_its_own(once, queue, how):
    fields = {"param1": ENDS[how], "max_count": 3}
    assert ended(queue, **fields) == ended(once, **fields)


def test_a_retry_is_counted_as_with_a_process_of_its_own(once, queue):
    act = '[ "$RQ_COUNT" = 2 ] && echo done third >&3 || echo resend 0-more >&3'
    assert ended(queue, param1=act) == ended(once, param1=act)


# ---- what it is told

TELL = "env | grep '^RQ_' | sort; pwd; echo done >&3"
KNOWN_APART = ("RQ_LEASE=", "RQ_SCRIPT=", "RQ_REALSCRIPT=")
TOLD = [
    {"dest": "q"},
    {"param2": 'a "quoted" \\ back\\\\slash', "param3": "tab\tand\rreturn\b\f\x01"},
    {"param2": "čeština 🚀  ", "param3": {"x": [1, None]}, "param4": "{}:,'$HOME`ls`"},
    {"dest": "http://far.example:3333/q/there", "force_remote": True},
    {"dest": "http://far.example:3333/", "count": 4, "orig_msg_id": "http://x/q/y/1"},
]


def told(queue, fields):
    message = queue.run(**{"dest": "q", **fields, "param1": TELL})
    text = queue.output(message["msg_id"]).replace(message["msg_id"], "ID")
    text = text.replace(f"/queue/{queue.name}/", "/queue/NAME/")
    lines = text.replace(f"/q/{queue.name}/", "/q/NAME/").split("\n")[2:-2]
    return [one for one in lines if not one.startswith(KNOWN_APART)]


@pytest.mark.parametrize("fields", TOLD)
def test_a_message_has_the_values_that_the_environment_of_a_process_has(
    once, queue, fields
):
    assert told(queue, fields) == told(once, fields)


def test_values_of_one_message_are_not_there_for_the_next(queue):
    url = "http://far.example:3333/q/there"
    act = "echo done $RQ_FORCE_REMOTE $RQ_DEST_QUEUE >&3"
    first = queue.run(param1=act, dest=url, force_remote=True)
    second = queue.run(param1=act, dest="http://far.example:3333/")
    assert first["status"] == "done - 1 there"
    assert second["status"] == "done"


@pytest.mark.slow
def test_params_as_large_as_a_message_may_have_arrive_whole(queue):
    large = "x" * 90_000
    act = 'echo done ${#RQ_PARAM2} ${#RQ_PARAM3} "${RQ_PARAM3#??????????????}" >&3'
    message = queue.run(param1=act, param2=large, param3="y" * 14 + "end", seconds=60)
    assert message["status"] == "done - 90000 17 end"


def test_one_process_takes_message_after_message(queue):
    texts = {queue.run(param1="echo done $$ >&3")["status"] for _ in range(5)}
    assert len(texts) == 1


# ---- what it prints


def test_what_is_printed_stands_in_the_log_of_its_message_and_no_other(queue):
    act = 'echo "out $RQ_PARAM2"; sh -c "echo err $RQ_PARAM2" >&2; echo done >&3'
    ids = [queue.send(param1=act, param2=name) for name in "abc"]
    for msg_id, name in zip(ids, "abc", strict=True):
        queue.ended(msg_id)
        empty, start, out, err, end, last = queue.output(msg_id).split("\n")
        assert (empty, out, err, last) == ("", f"out {name}", f"err {name}", "")
        assert " - RQ START - " in start
        assert " - RQ END - exit 0 - " in end
        assert start.split(" - ")[0] == end.split(" - ")[0]


def test_each_attempt_stands_in_the_log(light):
    act = "echo try $RQ_COUNT; [ $RQ_COUNT = 1 ] && echo done >&3"
    act += " || echo resend 0-x >&3"
    text = light.output(light.run(param1=act)["msg_id"])
    assert [one for one in text.split("\n") if one.startswith("try")] == [
        "try 0",
        "try 1",
    ]
    assert text.count("RQ START") == text.count("RQ END") == 2


def test_a_message_that_prints_nothing_leaves_no_log_unless_it_fails(queue, light):
    for one in (queue, light):
        quiet = one.run(param1="echo done >&3")
        assert not (one.folder(quiet["msg_id"]) / "job/stdio.log").exists()
        failed = one.run(param1="echo err no >&3")
        text = one.output(failed["msg_id"])
        assert "RQ START" in text
        assert "RQ END - exit 0" in text


def test_megabytes_are_logged_whole_before_the_message_ends(queue):
    act = "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo done >&3"
    message = queue.run(param1=act, seconds=60)
    assert "\n" + "x" * 3_000_000 + "\n" in queue.output(message["msg_id"])


def test_output_can_be_followed_while_the_message_runs(light):
    act = "echo begun; until [ -e $RQ_ROOT/go ]; do sleep 0.05; done; echo done >&3"
    msg_id = light.send(param1=act)
    path = light.dir.path / "run" / msg_id / "job/stdio.log"
    wait_until(lambda: "begun" in path.read_text())
    (light.root.path / "go").touch()
    assert light.ended(msg_id)["state"] == "done"


def test_a_log_that_an_earlier_attempt_made_a_trap_harms_nobody(queue):
    act = (
        "if [ $RQ_COUNT = 0 ]; then mkfifo stdio.log; echo resend 0-x >&3"
        "; else echo lost; echo done fine >&3; fi"
    )
    assert queue.run(param1=act)["status"] == "done - fine"


# ---- its directory and its folder


def test_the_directory_of_a_message_is_there_and_the_worker_in_it(queue):
    act = 'pwd > where; [ "$PWD" = "$RQ_MSG_DIR" ] && echo done >&3'
    message = queue.run(param1=act)
    assert message["state"] == "done"
    where = (queue.folder(message["msg_id"]) / "job/where").read_text().strip()
    assert where == str(queue.dir.path / "run" / message["msg_id"] / "job")


def test_without_directories_none_is_named_and_only_the_message_is_kept(light):
    message = light.run(param1='echo "done [$RQ_MSG_DIR] $PWD" >&3')
    assert message["status"] == "done - [] /"
    folder = light.folder(message["msg_id"])
    assert sorted(one.name for one in folder.iterdir()) == ["msg", "status"]
    kept = json.loads((folder / "msg").read_text())
    assert kept["msg_id"] == message["msg_id"]


def test_a_message_with_attachments_has_its_directory_in_any_case(light, tmp_path):
    file = tmp_path / "data"
    file.write_text("attached")
    msg_id = light.ok("prep_message", {
        "dest": light.name,
        "param1": 'read -r line < ../attach/data; echo "done $line" >&3',
    }).rpartition("/")[2]  # fmt: skip
    light.ok("attach_message", {"msg_id": msg_id, "pathname": str(file)})
    light.ok("commit_message", {"msg_id": msg_id})
    assert light.ended(msg_id)["status"] == "done - attached"


def test_a_message_that_runs_for_a_while_gets_its_folder(light):
    act = "until [ -e $RQ_ROOT/went ]; do sleep 0.05; done; echo done >&3"
    msg_id = light.send(param1=act)
    light.until(msg_id, "run")
    wait_until((light.dir.path / "run" / msg_id / "msg").exists)
    (light.root.path / "went").touch()
    assert light.ended(msg_id)["state"] == "done"


def test_progress_is_shown(light):
    act = "echo run so far >&3; until [ -e $RQ_ROOT/on ]; do sleep 0.05; done"
    msg_id = light.send(param1=f"{act}; echo done >&3")
    wait_until(lambda: light.get(msg_id)["status"] == "run - so far")
    status = light.dir.path / "run" / msg_id / "status"
    wait_until(lambda: json.loads(status.read_text())["job_status"] == "so far")
    (light.root.path / "on").touch()
    assert light.ended(msg_id)["status"] == "done"


# ---- dup


@pytest.mark.parametrize("kind", ["queue", "light"])
def test_a_copy_is_asked_for_and_answered_within_a_message(kind, once, request):
    queue = request.getfixturevalue(kind)
    act = 'echo dup 0-X-once >&3; read -r word text <&4; echo "done $word $text" >&3'
    message = queue.run(param1=act)
    word, full_id = message["status"].removeprefix("done - ").split()
    assert word == "ok"
    assert once.state(full_id.rpartition("/")[2])


def test_a_refused_copy_is_told(queue):
    act = 'echo dup 0-X-nobody >&3; read -r answer <&4; echo "done $answer" >&3'
    status = queue.run(param1=act)["status"]
    assert status == "done - fail couldn't connect to queue - nobody"


# ---- the helpers

SAY = {
    "python": """#!/usr/bin/env python3
import os, sys
sys.path.insert(0, os.environ["RQ_SHARE"])
import rq_worker
for message in rq_worker.messages():
    print("param", message.param2)
    message.run("on it")
    if message.param1 == "resend" and message.count == "0":
        message.resend(0, "again")
    elif message.param1 == "dup":
        message.done(message.dup("once"))
    elif message.param1 == "err":
        message.err("no\\nway")
    else:
        message.done(message.env["RQ_PARAM2"] + os.getcwd()[-4:])
""",
    "serve": """#!/usr/bin/env python3
import os, sys
sys.path.insert(0, os.environ["RQ_SHARE"])
import rq_worker
def work(message):
    print("param", message.param2)
    if message.param1 == "resend" and message.count == "0":
        return message.resend(0, "again")
    if message.param1 == "dup":
        return message.dup("once")
    if message.param1 == "err":
        raise SystemError("no way")
    return message.env["RQ_PARAM2"] + os.getcwd()[-4:]
rq_worker.serve(work)
""",
    "ruby": """#!/usr/bin/env ruby
require "#{ENV['RQ_SHARE']}/rq_worker"
RQWorker.each do |message|
  puts "param #{message['RQ_PARAM2']}"
  message.run "on it"
  case
  when message["RQ_PARAM1"] == "resend" && message["RQ_COUNT"] == "0"
    message.resend 0, "again"
  when message["RQ_PARAM1"] == "dup" then message.done message.dup_to("once")
  when message["RQ_PARAM1"] == "err" then message.err "no\\nway"
  else message.done message["RQ_PARAM2"] + Dir.pwd[-4..]
  end
end
""",
    "node": """#!/usr/bin/env node
const { messages } = require(process.env.RQ_SHARE + "/rq_worker.js");
(async () => {
  for await (const message of messages()) {
    const { RQ_PARAM1: what, RQ_PARAM2: text, RQ_COUNT: count } = message.env;
    console.log("param", text);
    message.run("on it");
    if (what === "resend" && count === "0") message.resend(0, "again");
    else if (what === "dup") message.done(await message.dup("once"));
    else if (what === "err") message.err("no\\nway");
    else message.done(text + process.cwd().slice(-4));
  }
})();
""",
    "perl": """#!/usr/bin/env perl
use strict; use warnings; use utf8; use Cwd;
use lib $ENV{RQ_SHARE};
use RQWorker;
binmode STDOUT, ':encoding(UTF-8)';
while (my $message = RQWorker::next_message()) {
    my ($what, $text) = @$message{qw(RQ_PARAM1 RQ_PARAM2)};
    print "param $text\\n";
    $message->run("on it");
    if ($what eq 'resend' and $message->{RQ_COUNT} eq '0') { $message->resend(0, 'again') }
    elsif ($what eq 'dup') { $message->done($message->dup('once')) }
    elsif ($what eq 'err') { $message->err("no\\nway") }
    else { $message->done($text . substr(getcwd(), -4)) }
}
""",
    "sh": """#!/bin/sh
. "$RQ_SHARE/rq_worker.sh"
while rq_next; do
    printf 'param %s\\n' "$RQ_PARAM2"
    echo run on it >&3
    case $RQ_PARAM1$RQ_COUNT in
        resend0) echo resend 0-again >&3 ;;
        dup0) echo dup 0-X-once >&3; read -r word text <&4; echo "done $text" >&3 ;;
        err0) echo err no way >&3 ;;
        *) printf 'done %s%s\\n' "$RQ_PARAM2" "${PWD#"${PWD%????}"}" >&3 ;;
    esac
done
""",
}
PROGRAM = {"python": "python3", "serve": "python3"}
TRICKY = 'ž "q" \\u0041 \\\\n {"a":"b"} 🚀'


@pytest.fixture(params=SAY)
def helper(request, root):
    program = PROGRAM.get(request.param, request.param)
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    settings = {"worker": "persistent", "env_vars": {"LC_ALL": "C.UTF-8"}}
    name = f"in_{request.param}"
    with running_queue(root, SAY[request.param], name=name, **settings) as queue:
        yield queue


def test_a_helper_takes_messages_and_says_all_that_scripts_can(helper, once):
    plain = helper.run(param2=TRICKY)
    assert plain["status"] == f"done - {TRICKY}/job", helper.log()
    assert f"\nparam {TRICKY}\n" in helper.output(plain["msg_id"])
    assert helper.run(param1="resend", param2="x")["count"] == 1
    assert "no way" in helper.run(param1="err", param2="x")["status"]
    copy = helper.run(param1="dup", param2="x")["status"].rpartition("/")[2]
    assert once.ended(copy)["param2"] == "x"
    assert helper.log().count("a worker starts") == 1


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_the_helper_for_sh_reads_every_value_in_every_shell(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    values = {
        "RQ_PARAM1": "".join(map(chr, range(1, 128))) + "x",
        "RQ_PARAM2": 'č"\\"🚀\\u0022',
        "RQ_PARAM3": "",
        "RQ_PARAM4": '}","RQ_COUNT":"9',
        "RQ_COUNT": "1",
    }
    helper = Path(__file__).parents[2] / "rq/share/rq_worker.sh"
    asked = f". {helper}; rq_next && printf '%s\\0' " + " ".join(
        f'"${name}"' for name in values
    )
    words = [shell, *(["sh"] if shell == "busybox" else []), "-c"]
    ran = subprocess.run(
        [*words, f"exec 3>/dev/null 4<&0; {asked}"],
        input=worker_protocol.line(values),
        capture_output=True,
        check=True,
    )
    assert ran.stderr == b""
    assert ran.stdout.decode().split("\0")[:-1] == list(values.values())
