"""What `rq run`, `retry` and `ack` say of messages that they cannot change."""

import pytest

from rq import cli
from rq.cli import ids, owner, place
from rq.errors import Down, WrongState
from rq.words.states import State

ID = "20260102.0304.05.006.7"


@pytest.fixture
def change(monkeypatch, tmp_path, capsys):
    """Run a verb on a message in a state; return exit code, output and complaint."""

    def run(verb, state, answer=lambda *_: None):
        monkeypatch.setattr(place, "demand_running", lambda _: None)
        monkeypatch.setattr(ids, "resolve", lambda *_: ("work", ID))
        monkeypatch.setattr(owner.Reader, "state", lambda *_: state)
        monkeypatch.setattr(owner, "demand", answer)
        words = [verb] if isinstance(verb, str) else verb
        code = cli.main(["--root", str(tmp_path), *words, ID])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("verb", "state", "why"),
    [
        (
            "retry",
            State.QUE,
            "waits to run: `rq retry` is for messages in err, dismissed",
        ),
        ("retry", State.RUN, "is running: `rq retry` is for messages in err"),
        ("retry", State.DONE, "has succeeded: `rq retry` is for messages in err"),
        (
            "ack",
            State.PREP,
            "is being prepared: `rq ack` is for messages in err",
        ),
        (
            "ack",
            State.RELAYED,
            "was handed over to another queue or host: `rq ack` is for",
        ),
        ("run", State.ERR, "has failed: `rq run` is for messages in que"),
        (
            ["due", "--at", "now"],
            State.DONE,
            "has succeeded: `rq due` is for messages in que",
        ),
    ],
)
def test_a_wrong_state_is_told_in_words(change, verb, state, why):
    code, output, complaint = change(verb, state)
    assert (code, output) == (cli.REFUSED, "")
    assert complaint.startswith(f"rq: work/{ID} {why}")


@pytest.mark.parametrize(
    ("verb", "state", "text"),
    [
        ("retry", State.ERR, "will run again"),
        ("ack", State.ERR, "is acknowledged"),
        ("run", State.QUE, "runs before all others"),
        (
            ["due", "--at", "@1700000000"],
            State.QUE,
            "is due at 2023-11-14 22:13:20 UTC",
        ),
        (["priority", "--to", "7"], State.QUE, "has priority 7"),
    ],
)
def test_what_was_changed_is_told(change, verb, state, text):
    assert change(verb, state) == (cli.OK, f"work/{ID} {text}\n", "")


def test_what_is_acknowledged_already_is_told(change):
    def refuse(*_):
        raise WrongState("msg is acknowledged already")

    code, _, complaint = change("ack", State.ERR, refuse)
    assert code == cli.REFUSED
    assert complaint == f"rq: work/{ID} is acknowledged already\n"


def test_a_queue_that_is_down_is_named_with_what_lets_it_work(tmp_path, monkeypatch):
    monkeypatch.setattr(owner, "ask", lambda *_: ["fail", "status: DOWN", "down"])
    with pytest.raises(Down, match="queue work is DOWN: `rq queue up work`"):
        owner.demand(None, "work", "create_message", {})


@pytest.mark.parametrize(
    ("editor", "why"),
    [
        (
            "/nonexistent",
            "'/nonexistent' cannot be started (No such file or directory)",
        ),
        ('vi "', "cannot be started (No closing quotation)"),
        ("rm", "what was edited cannot be read"),
        ("false", "false ended with 1: nothing is sent"),
    ],
)
def test_an_editor_that_does_not_work_is_one_sentence(change, monkeypatch, editor, why):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    code, output, complaint = change("edit", State.DONE, lambda *_: {"param1": "x"})
    assert (code, output) == (cli.USAGE, "")
    assert why in complaint
    assert complaint.count("\n") == 1
