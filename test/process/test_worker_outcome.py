"""What becomes of a message: the table of exit statuses and words, row by row."""

import pytest
from harness.queues import running_queue

pytestmark = pytest.mark.process
IMPROPER = "err - PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was "


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running_queue(tmp_path_factory.mktemp("root"), num_workers=2) as queue:
        yield queue


@pytest.fixture
def queue(shared):
    yield shared
    shared.check()


def run(queue, script, **fields):
    """Run lines of shell as a message; return it when it has ended."""
    return queue.run(
        param1=f'exec 2>&1\nsay() {{ echo "$@" >&3; }}\n{script}', **fields
    )


# ---- the table

ROWS = {
    # script: (state and status, cause)
    "say done fine": ("done - fine", "done"),
    "say done": ("done", "done"),
    "say relayed http://h/q/x/1": ("relayed - http://h/q/x/1", "relayed"),
    "say err by design": ("err - by design", "said_err"),
    "say err by design; exit 3": ("err - by design", "said_err"),
    "say err by design; kill -9 $$": ("err - by design", "said_err"),
    "say fails old word": ("err - old word", "said_err"),
    "say fail not a word before": ("err - not a word before", "said_err"),
    "exit 0": ("err", "no_word"),
    "say run half way": ("err - half way", "no_word"),
    "exit 7": (f"{IMPROPER}none but exit status was 7", "exit"),
    "say done fine; exit 1": (f"{IMPROPER}done but exit status was 1 - fine", "exit"),
    "say relayed x; exit 1": (f"{IMPROPER}relayed but exit status was 1 - x", "exit"),
    "say resend 0-x; exit 2": (
        f"{IMPROPER}resend but exit status was 2 - 0-x",
        "exit",
    ),
    "say run on; kill -9 $$": (
        f"{IMPROPER}none but exit status was SIGKILL - on",
        "signal",
    ),
    "say done; kill -TERM $$; sleep 9": (
        f"{IMPROPER}done but exit status was SIGTERM",
        "signal",
    ),
}


@pytest.mark.parametrize("script", ROWS)
def test_exit_status_and_first_word_decide_as_the_table_says(queue, script):
    status, cause = ROWS[script]
    message = run(queue, script)
    assert message["status"] == status
    assert message["state"] == status.partition(" ")[0]
    assert message["result"]["cause"] == cause
    assert message["count"] == 0


FIRST_WORDS = {
    "say done one; say err two": ("done - two", "done"),
    "say err one; say done two": ("err - two", "said_err"),
    "say done one; say done two": ("done - two", "done"),
    "say relayed one; say resend 0-two": ("relayed - 0-two", "relayed"),
    "say done one; say run two": ("done - two", "done"),
    "say done one; say gibberish of mine": ("done - gibberish of mine", "done"),
    "say fail one; say done two": ("err - two", "said_err"),
}


@pytest.mark.parametrize("script", FIRST_WORDS)
def test_the_first_completion_word_wins_and_the_last_line_is_the_text(queue, script):
    status, cause = FIRST_WORDS[script]
    message = run(queue, script)
    assert (message["status"], message["result"]["cause"]) == (status, cause)


def test_words_of_one_run_do_not_outlive_it(queue):
    script = "[ $RQ_COUNT = 0 ] && { say resend 0-later; say done; exit; }; say err now"
    message = run(queue, script)
    assert message["status"] == "err - now"
    assert message["count"] == 1
    script = "[ $RQ_COUNT = 0 ] && { say resend 0-later; exit; }; exit 0"
    assert run(queue, script)["result"]["cause"] == "no_word"


# ---- resend


def test_a_resend_counts_once_however_often_it_is_said(queue):
    script = (
        "[ $RQ_COUNT = 0 ] && { say resend 0-a; say resend 90-b; exit; }; "
        "say done $RQ_COUNT"
    )
    message = run(queue, script)
    assert message["status"] == "done - 1"
    assert message["count"] == 1
    assert message["result"]["attempt"] == 2


def test_a_resend_waits_as_long_as_it_says_from_the_end_of_the_run(queue):
    msg_id = queue.send(param1="echo resend 1000-not yet >&3; sleep 0.2")
    before = queue.get(msg_id)["due"]
    message = queue.until(msg_id, "que")
    while message["count"] == 0:
        message = queue.until(msg_id, "que")
    assert 1000 < message["due"] - before < 1060
    assert message["status"] == "que - 1000-not yet"
    assert message["story"]["why"].startswith(
        "The script asked to be run again (retry 1 of 15): not yet"
    )
    queue.ok("delete_message", {"msg_id": msg_id})


def test_the_last_resend_that_max_count_allows_ends_in_err(queue):
    script = "say resend 0-again; echo run $RQ_COUNT; say run $((RQ_COUNT + 1)) of 3"
    message = run(queue, script, max_count=3)
    assert message["status"] == "err - HIT MAX RESEND COUNT - MOVING TO ERR - 3 of 3"
    assert message["count"] == 3
    assert message["result"]["attempt"] == 3
    output = queue.output(message["msg_id"])
    assert [f"run {n}\n" in output for n in range(4)] == [True, True, True, False]
    assert "run again 3 times" in message["story"]["what"]


@pytest.mark.parametrize("text", ["", "soon", "-1-x", "1e3-x", "99999999999-x", "½-x"])
def test_a_resend_that_cannot_be_read_is_an_err_that_says_so(queue, text):
    message = run(queue, f"say 'resend {text}'")
    assert message["state"] == "err"
    assert message["result"]["cause"] == "bad_report"
    assert "resend SECONDS-REASON" in message["status"]
    assert queue.alive


# ---- lines


def test_words_that_are_not_known_show_and_change_nothing(queue):
    message = run(
        queue, "say DONE; say Done; say quit; say donee; say 'done\tx'; sleep .3"
    )
    assert message["result"]["cause"] == "no_word"
    assert message["status"] == "err - done\tx"


def test_progress_shows_while_the_script_runs(queue):
    msg_id = queue.send(param1="echo run half way >&3; read x <&4; sleep 30")
    message = queue.until(msg_id, "run")
    while "half way" not in message["status"]:
        message = queue.until(msg_id, "run")
    assert message["status"] == "run - half way"
    assert message["phase"] == "running"
    assert "half way" in message["story"]["why"]
    queue.ok("destroy_message", {"msg_id": msg_id})
    queue.ended(msg_id)


def test_a_line_that_comes_in_pieces_is_one_line(queue):
    script = (
        "printf 'run x'; sleep .05; printf 'x\\ndo' ; sleep .05; printf 'ne in pie'\n"
        "sleep .05; printf 'ces\\n'"
    )
    assert run(queue, f"{{ {script}; }} >&3")["status"] == "done - in pieces"


@pytest.mark.parametrize("length", [4095, 4096, 4097, 8192, 60000])
def test_a_long_line_is_one_line_wherever_reads_cut_it(queue, length):
    script = (
        f"pad() {{ head -c {length} /dev/zero | tr '\\0' x; }}\n"
        '{ echo "run $(pad)"; echo "done $(pad)"; } >&3'
    )
    message = run(queue, script)
    assert message["status"] == "done - " + "x" * length


def test_a_line_of_ten_megabytes_is_cut_and_its_word_counts(queue):
    script = "{ printf 'done '; head -c 10000000 /dev/zero | tr '\\0' x; echo; } >&3"
    message = run(queue, script)
    assert message["state"] == "done"
    assert message["status"].startswith("done - xxx")
    assert len(message["status"]) < 70_000


def test_a_last_line_without_its_end_is_a_line(queue):
    assert run(queue, "printf 'done at last' >&3")["status"] == "done - at last"


def test_empty_lines_and_blanks_before_a_word_do_not_matter(queue):
    assert run(queue, "printf '\\n\\n   done   x  \\n\\n' >&3")["status"] == "done - x"


def test_nul_bytes_and_half_characters_become_marks(queue):
    message = run(queue, "printf 'done a\\0b \\303 caf\\303\\251 \\377\\n' >&3")
    assert message["status"] == "done - a\ufffdb \ufffd café \ufffd"
