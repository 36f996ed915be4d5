"""The verbs of the command line: where each is, and its line in `rq --help`."""

from __future__ import annotations

from rq.message.action import Door
from rq.message.actions import ACTIONS, Word, at

# verb: (module:function, one line of help); a function takes (root, words) and returns
# the exit code. A word behind it, as in `change:act retry`, is its first argument.
VERBS: dict[str, tuple[str, str]] = {
    "up": ("up:up", "set up what is missing, start RQ, wait until it is ready"),
    "down": ("up:down", "stop RQ and wait until all its processes have ended"),
    "demo": (
        "samples:demo",
        "send three sample messages and show what becomes of them",
    ),
    "status": (
        "status:status",
        "what runs, what waits, what is wrong; exit status 1 if something is",
    ),
    "send": ("send:send", "send a message to a queue"),
    "ls": ("listing:ls", "list messages"),
    "runs": ("indexed:runs", "what ran since yesterday 18:00, or in another span"),
    "failures": (
        "indexed:failures",
        "what failed, by what the failures have in common",
    ),
    "find": ("indexed:find", "find messages of all queues by words"),
    "show": ("show:show", "what happened to a message, why, and what to do"),
    "why": ("show:why", "what waiting messages wait for, and what to do"),
    "logs": ("output:logs", "what a message's script has written; -f follows it"),
    "wait": ("wait:wait", "wait until messages have ended"),
    # Each action of the table that has a verb.
    **{
        word: (f"change:act {word}", action.summary)
        for word, action in at(Door.CLI).items()
    },
    "edit": ("edit:edit", ACTIONS[Word.EDIT].summary),
    "bulk": ("bulk:bulk", "ls | cancel: requests that change many messages"),
    "queue": ("queue:queue", "ls | new | pause | resume | down | up | restart: queues"),
    "timer": (
        "timer:timer",
        "ls, show, next, run, pause, resume, ack, import: timers",
    ),
    "router": ("router:router", "try | import: routing rules"),
    "owed": (
        "owed:owed",
        "ls | resolve: copies and webhooks that are not yet delivered",
    ),
    "notice": (
        "notice:notice",
        "ls | test: whom queues tell how they go, by mail, URL or queue",
    ),
    "restore": (
        "restore:restore",
        "ls | accept: queues that were copied or restored from a backup",
    ),
    "relay": (
        "relay:relay",
        "ls | retry | resolve | allow | forbid: messages to other hosts",
    ),
    "broker": (
        "broker:broker",
        "enable | disable | status | join | leave: queues for Redis clients",
    ),
    "work": ("work:work", "work on the messages of a queue of another host"),
    "worker": ("worker:worker", "ls: who works on messages under leases"),
    "flow": (
        "flow:flow",
        "run | show | ls | rerun | retry | cancel: messages that wait for each other",
    ),
    "txn": ("txn:txn", "ls | abort: messages that are accepted all at once"),
    "spark": ("spark:spark", "doctor | try | history | table | work: on Spark"),
    "index": (
        "index:index",
        "status | rebuild: what questions about many are asked of",
    ),
    "trash": ("trash:trash", "ls | empty | keep: the queues that were removed"),
    "check": ("check:check", "check that journal, folders and counters agree"),
    "doctor": ("doctor:doctor", "measure the disk and say what RQ can promise here"),
    "passwd": (
        "token:passwd",
        "make the hash of a password, for basic_auth in the config",
    ),
    "open": ("open:open_", "print an address of the web that signs you in, once"),
    "token": (
        "token:token",
        "create | ls | revoke: secrets with which programs sign in",
    ),
    "sandbox": (
        "sandbox:sandbox",
        "run a command, say tests, with an RQ of its own that is gone afterwards",
    ),
    "config": ("config_show:config", "show: the settings in force"),
    "version": (
        "version:version",
        "the version of this program, and of the RQ that runs",
    ),
}
ANCESTOR: dict[str, tuple[str, str]] = {
    "sendmesg": (
        "ancestor:new_message sendmesg",
        "--dest D [--param1 ..4 --due --src ...]",
    ),
    "prepmesg": ("ancestor:new_message prepmesg", "the same, without commit"),
    "single_que": ("ancestor:single_que", "the same, unless one waits already"),
    "attachmesg": ("ancestor:attachmesg", "--msg_id ID --pathname P [--name N]"),
    "commitmesg": ("ancestor:about commitmesg", "--msg_id ID"),
    "statusmesg": ("ancestor:field_of statusmesg", "--msg_id ID"),
    "state": ("ancestor:about state", "--msg_id ID"),
    "statuscountmesg": ("ancestor:field_of statuscountmesg", "--msg_id ID"),
    "attachstatusmesg": ("ancestor:attachstatusmesg", "--msg_id ID"),
    "clone": ("ancestor:about clone", "--msg_id ID"),
    "verify_rules": ("router:verify_rules", "[--path F] [--verbose]"),
}
# Verbs whose words name files, as a function of the words tells.
NAMED = {
    "send": "send:named",
    "attachmesg": "ancestor:named",
    "broker": "broker:named",
    "flow": "flow:named",
    "router": "router:named",
    "verify_rules": "router:named_rules",
}
# These need no RQ on this machine; they are given the option --root, or None.
ROOTLESS = frozenset({"work", "sandbox"})
# These find or make a clean state themselves.
UNWARNED = frozenset({"up", "down", "check", "version"})
# The first verb of a group in the help, and what the group is about.
_HEADS = {
    "up": "Start and stop RQ:",
    "status": "Messages:",
    "queue": "Queues, timers, and what goes to other queues and hosts:",
    "check": "Look after RQ:",
}


def usage() -> str:
    """Return the help of `rq` itself, from the tables."""
    lines = ["usage: rq [--root DIR] VERB [options]     `rq VERB --help` says more"]
    for verb, (_, text) in VERBS.items():
        if verb in _HEADS:
            lines += ["", _HEADS[verb], ""]
        lines.append(f"  {verb:<18}{text}")
    lines += [
        "",
        "Verbs of the Ruby RQ, with its output and its exit codes 0 and 1:",
        "",
    ]
    lines += [f"  {verb:<18}{text}" for verb, (_, text) in ANCESTOR.items()]
    lines += [
        "",
        "ID is the id of a message or its beginning, QUEUE/ID, or a URL. Most verbs have\n"
        "--json, for programs. --root DIR: the directory of RQ, else $RQ_ROOT.",
        "Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 not found, 4 refused, 6 RQ is not",
        "running, 7 timed out, 8 a message ended in err, 9 check found problems.",
    ]
    return "\n".join(lines)
