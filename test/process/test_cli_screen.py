"""A terminal that shows what RQ prints is not moved, named or fooled by what is in it."""

import json
import os
import re

import pytest
from harness import ancestor
from harness.cli import rq

pytestmark = pytest.mark.process

E = "\x1b"
HOSTILE = (
    f"{E}]0;owned\x07{E}[2J{E}[31m\x9b1A\b\rover\u202egpj.exe\u2066\U000e0041\ufeff"
)
OWN = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Give a root where a failed message says nothing but mischief."""
    made = ancestor.build(tmp_path_factory.mktemp("old") / "root")
    folder = made / "queue/work/err" / ancestor.FAILED
    message = json.loads((folder / "msg").read_text())
    message |= {"param1": HOSTILE, "status": f"err - {HOSTILE}", "src": HOSTILE}
    message[f"x_a\r\nFORGED{HOSTILE}"] = "x"
    (folder / "msg").write_text(json.dumps(message))
    (folder / "status").write_text(f"err - {HOSTILE}")
    (folder / "job").mkdir(exist_ok=True)
    (folder / "job/stdio.log").write_bytes(HOSTILE.encode() + b"\x9b2J\n")
    (made / "timers").mkdir(exist_ok=True)
    (made / "timers" / f"{HOSTILE.replace('/', '')}.json").write_text("{")
    return made


def harmless(text):
    rest = OWN.sub("", text)
    return all(c == "\n" or c.isprintable() or c == "\t" for c in rest)


VERBS = [
    ["show", ancestor.FAILED],
    ["show", ancestor.FAILED, "--json"],
    ["ls", "work", "--state", "err"],
    ["ls", "--json"],
    ["statusmesg", "--msg_id", f"work/{ancestor.FAILED}"],
    ["logs", ancestor.FAILED],
    ["logs", "-f", ancestor.FAILED],
    ["timer", "ls"],
    ["status"],
    ["router", "try", HOSTILE],
    ["show", HOSTILE],
    ["queue", "pause", HOSTILE],
    ["send", "work", f"--{HOSTILE}"],
    [HOSTILE],
    ["--root", HOSTILE, "status"],
]


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0][:12])
def test_nothing_that_a_verb_prints_moves_the_cursor(root, words):
    done = rq(*words, root=root)
    assert done.stdout + done.stderr != ""
    assert harmless(done.stdout), done.stdout
    assert harmless(done.stderr), done.stderr


@pytest.mark.parametrize("words", VERBS[:7], ids=lambda words: words[0][:12])
def test_no_name_of_a_field_begins_a_line_of_its_own(root, words):
    lines = rq(*words, root=root).stdout.splitlines()
    assert not any(line.startswith("FORGED") for line in lines)


def test_a_timer_whose_message_has_a_strange_field_is_refused_in_one_line(root):
    file = root / "strange.json"
    message = {"dest": "work", "max_count\n": "x"}
    file.write_text(json.dumps({"period": 60, "msg": message}))
    done = rq("timer", "validate", str(file), root=root)
    assert "is no field of a message" in done.stderr
    assert harmless(done.stderr)
    assert done.stderr.count("\n") == 1


def test_json_for_programs_holds_the_values_as_they_are(root):
    told = json.loads(rq("show", ancestor.FAILED, "--json", root=root).stdout)
    assert told["param1"] == HOSTILE


def test_a_log_shows_its_colours_and_the_rest_as_text(root):
    done = rq("logs", ancestor.FAILED, root=root)
    shown = "<U+202E>gpj.exe<U+2066><U+E0041><U+FEFF>\ufffd2J\n"
    expected = f"{E}[31m<U+009B>1A<U+0008>\nover{shown}{E}[0m"
    assert done.stdout == expected


def test_a_log_gives_its_bytes_to_who_asks_for_them(root):
    raw = rq("logs", "--raw", ancestor.FAILED, root=root, text=False).stdout
    assert raw == HOSTILE.encode() + b"\x9b2J\n"


def test_a_file_name_that_is_no_text_costs_no_traceback(root):
    name = os.fsencode(root / "timers") + b"/\xff\x9b.json"
    with open(name, "w") as file:
        file.write("{")
    done = rq("timer", "ls", root=root)
    assert harmless(done.stdout + done.stderr)
    assert "Traceback" not in done.stderr
    os.unlink(name)
