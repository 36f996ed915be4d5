"""What a queue tells people: when, whom, how often, and never of itself."""

import contextlib
import json
import time

import pytest
from harness.cli import rq
from harness.extent import rotated
from harness.post import Post, notice_queue
from harness.queues import kept, running_queue, short
from harness.waiting import wait_until
from process.test_webhook import receiver

pytestmark = pytest.mark.process

OPS = "ops@example.org"
FAIL = "echo one; echo two words; echo err it broke >&3"
FINE = "echo done >&3"


@contextlib.contextmanager
def telling(tmp_path, root=None, **settings):
    """Give where mail goes, the queue that brings notices, and one that has some."""
    post = Post(tmp_path, **(root or {}))
    with (
        kept(notice_queue(tmp_path)) as notice,
        running_queue(tmp_path, name="t", **settings) as queue,
    ):
        yield post, notice, queue


def until_told(post, count):
    wait_until(lambda: len(post.raw()) >= count)
    return post.letters()


def rows(queue, state):
    return list(queue.ok("list", {"state": state, "limit": 10}))


def nothing_more(queue, notice):
    """Wait until all that is owed has been delivered, and brought."""
    wait_until(lambda: queue.ok("detail")["owed"] == 0)
    wait_until(
        lambda: not any(notice.ok("detail")["counts"][s] for s in ("que", "run"))
    )


def test_an_err_is_mailed_with_its_story_and_the_last_lines_of_its_log(tmp_path):
    with telling(tmp_path, on_err=OPS) as (post, notice, queue):
        msg_id = queue.send(param1=FAIL)
        [letter] = until_told(post, 1)
        body = letter.get_content()
        assert letter["To"] == OPS
        assert letter["Subject"] == "[RQ 127.0.0.1] t: a message failed: it broke"
        assert letter["Auto-Submitted"] == "auto-generated"
        assert f"/q/t/{msg_id}" in body
        assert "The script reported err: it broke." in body
        assert f"rq retry {msg_id}" in body
        assert "one\ntwo words" in body
        assert (tmp_path / "box/argv").read_text() == "-t -oi\n"
        nothing_more(queue, notice)
        assert len(post.raw()) == 1


def test_a_script_cannot_write_headers_nor_move_a_reader_s_cursor(tmp_path):
    evil = (
        "printf 'x\\033[2J\\000\\r\\nBcc: a@b\\n'; printf 'err a\\tb\\033[1mé\\n' >&3"
    )
    with telling(tmp_path, on_err=["ops@example.org", "é@example.org"]) as (
        post,
        _,
        queue,
    ):
        queue.send(param1=evil)
        [letter] = until_told(post, 1)
        raw = post.raw()[0]
        assert letter["Bcc"] is None
        assert raw.isascii()
        assert all(byte >= 32 or byte in b"\t\n" for byte in raw)
        assert "\x1b" not in letter.get_content()
        assert "\n" not in str(letter["Subject"])
        assert "é" in str(letter["Subject"])


def test_a_storm_is_told_twice(tmp_path):
    storm = 100
    on_err = {"mail": OPS, "every": 0.1}
    with telling(tmp_path, on_err=on_err, num_workers=8) as (post, notice, queue):
        for _ in range(storm):
            queue.send(param1=FAIL)
        wait_until(lambda: queue.ok("detail")["counts"]["err"] == storm, 120)
        wait_until(lambda: told_in(post) >= storm, 60)
        nothing_more(queue, notice)
        assert told_in(post) == storm
        assert len(post.raw()) <= 20
        assert notice.ok("detail")["counts"]["done"] == len(post.raw())


def told_in(post):
    """Return how many errs the letters tell of."""
    counted = 0
    for subject in post.subjects():
        _, and_more, more = subject.rpartition(", and ")
        counted += 1 + (int(more.split()[0]) if and_more else 0)
    return counted


@pytest.mark.slow
def test_what_was_only_counted_is_told_after_a_kill_and_nothing_is_told_twice(tmp_path):
    on_err = {"mail": OPS, "every": 0.1}
    with telling(tmp_path, on_err=on_err) as (post, notice, queue):
        for _ in range(4):
            queue.run(param1=FAIL)
        queue.crash()
        queue.start()
        wait_until(lambda: told_in(post) >= 4)
        queue.restart()
        nothing_more(queue, notice)
        assert told_in(post) == 4
        assert len(post.raw()) == 2
        assert "there were 3 of these" in post.bodies()[1]


@pytest.mark.parametrize("point", rotated(["journal:written", "journal:after-sync"]))
def test_an_err_that_a_kill_came_after_is_told_once(tmp_path, point):
    go = tmp_path / "go"
    script = f"while ! [ -f {go} ]; do sleep 0.05; done; {FAIL}"
    with telling(tmp_path, on_err={"mail": OPS, "every": 60}) as (post, notice, queue):
        msg_id = queue.send(param1=script)
        queue.until(msg_id, "run")
        queue.crash_at(point)
        go.touch()
        wait_until(lambda: not queue.alive)
        assert post.raw() == []
        queue.start()
        queue.ended(msg_id)
        until_told(post, 1)
        queue.restart()
        nothing_more(queue, notice)
        assert len(post.raw()) == 1
        assert notice.ok("detail")["counts"]["done"] == 1


def test_where_no_mail_can_be_sent_the_notice_says_so_and_stays_in_err(tmp_path):
    with telling(tmp_path, {"sendmail": "/none/sendmail"}, on_err=OPS) as (
        _post,
        notice,
        queue,
    ):
        queue.send(param1=FAIL)
        wait_until(lambda: notice.ok("detail")["counts"]["err"] == 1)
        [row] = rows(notice, "err")
        assert "there is no program /none/sendmail" in row["status"]
        assert queue.ok("detail")["owed"] == 0


def test_the_queue_that_brings_notices_tells_nobody_of_its_own_errs(tmp_path):
    root = {"on_err": OPS, "on_output": OPS, "sendmail": "/none/sendmail"}
    with telling(tmp_path, root) as (_post, notice, queue):
        queue.send(param1=FAIL)
        wait_until(lambda: notice.ok("detail")["counts"]["err"] == 1)
        nothing_more(notice, notice)
        assert notice.ok("detail")["owed"] == 0
        assert sum(notice.ok("detail")["counts"].values()) == 1


def test_the_root_says_it_for_all_and_a_queue_for_itself(tmp_path):
    with (
        telling(tmp_path, {"on_err": OPS}) as (post, notice, queue),
        running_queue(tmp_path, name="other", on_err=False) as other,
    ):
        other.run(param1=FAIL)
        queue.run(param1=FAIL)
        until_told(post, 1)
        nothing_more(other, notice)
        assert [subject.split()[2] for subject in post.subjects()] == ["t:"]


def test_the_first_success_after_an_err_is_told(tmp_path):
    settings = {"on_err": OPS, "on_recovered": "boss@example.org"}
    with telling(tmp_path, **settings) as (post, notice, queue):
        queue.run(param1=FINE)
        queue.run(param1=FAIL)
        queue.crash()
        queue.start()
        queue.run(param1=FINE)
        queue.run(param1=FINE)
        until_told(post, 2)
        nothing_more(queue, notice)
        told = {
            (one["To"], one["Subject"].partition("t: ")[2]) for one in post.letters()
        }
        assert told == {
            (OPS, "a message failed: it broke"),
            ("boss@example.org", "it succeeds again"),
        }
        assert len(post.raw()) == 2


@pytest.mark.slow
def test_the_first_success_after_an_err_is_told_after_a_stop(tmp_path):
    with telling(tmp_path, on_err=OPS, on_recovered=OPS) as (post, notice, queue):
        queue.run(param1=FAIL)
        queue.restart()
        queue.run(param1=FINE)
        until_told(post, 2)
        nothing_more(queue, notice)
        assert len(post.raw()) == 2


def test_what_a_script_prints_is_mailed_as_cron_does(tmp_path):
    with telling(tmp_path, on_output=OPS) as (post, notice, queue):
        queue.run(param1="echo first; echo second >&2; echo done >&3")
        queue.run(param1=FINE)
        queue.run(param1="echo third; echo done >&3")
        queue.run(param1="echo fourth; echo err no >&3")
        until_told(post, 3)
        nothing_more(queue, notice)
        bodies = sorted(
            body.partition("What it printed:\n\n")[2] for body in post.bodies()
        )
        assert bodies == ["first\nsecond\n", "fourth\n", "third\n"]


def test_only_the_output_of_the_attempt_itself_is_mailed(tmp_path):
    with telling(tmp_path, on_output=OPS) as (post, _notice, queue):
        script = 'echo "try $RQ_COUNT"; if [ $RQ_COUNT = 0 ]; then echo resend 0-x >&3; else echo done >&3; fi'
        queue.run(param1=script)
        [letter] = until_told(post, 1)
        assert letter.get_content().endswith("What it printed:\n\ntry 1\n")


def test_output_is_bounded_and_shows_both_ends(tmp_path):
    with telling(tmp_path, on_output=OPS) as (post, _notice, queue):
        queue.run(param1="echo begin; seq 1 40000; echo end; echo done >&3")
        [letter] = until_told(post, 1)
        body = letter.get_content()
        assert len(body) < 100_000
        assert "begin\n1\n2\n" in body
        assert body.endswith("40000\nend\n")
        assert "bytes are left out …]" in body


def test_an_err_that_was_mailed_is_not_mailed_again_for_its_output(tmp_path):
    with telling(tmp_path, on_err={"mail": OPS, "every": 0}, on_output=OPS) as (
        post,
        notice,
        queue,
    ):
        queue.run(param1=FAIL)
        until_told(post, 1)
        nothing_more(queue, notice)
        assert len(post.raw()) == 1


def test_an_attempt_that_takes_long_is_told_while_it_is_at_work_and_once(tmp_path):
    with telling(tmp_path, on_slow={"mail": OPS, "seconds": 1}) as (
        post,
        notice,
        queue,
    ):
        until = tmp_path / "go"
        msg_id = queue.send(
            param1=f"while ! [ -f {until} ]; do sleep 0.1; done; echo done >&3"
        )
        [letter] = until_told(post, 1)
        assert "has been at work for" in letter["Subject"]
        until.touch()
        queue.ended(msg_id)
        nothing_more(queue, notice)
        assert len(post.raw()) == 1


def test_a_queue_in_which_nothing_succeeds_tells_so_once_and_when_it_does(tmp_path):
    with telling(tmp_path, on_quiet={"mail": OPS, "seconds": 1}) as (
        post,
        notice,
        queue,
    ):
        [letter] = until_told(post, 1)
        assert letter["Subject"].endswith("t: nothing has succeeded for long")
        queue.crash()
        queue.start()
        queue.run(param1=FAIL)
        time.sleep(1.1)
        queue.restart()
        queue.run(param1=FINE)
        second = until_told(post, 2)[1]
        assert second["Subject"].endswith("t: it succeeds again")
        nothing_more(queue, notice)
        assert len(post.raw()) == 2


def test_a_webhook_is_told_signed_and_only_where_that_is_allowed(tmp_path):
    with (
        receiver() as hook,
        telling(tmp_path, on_err=hook.url()) as (_post, notice, queue),
    ):
        queue.send(param1=FAIL)
        wait_until(lambda: notice.ok("detail")["counts"]["err"] == 1)
        assert hook.heard == []
        notice.root.webhooks.write_text(json.dumps({"allow": ["127.0.0.1"]}))
        notice.root.webhooks.chmod(0o600)
        [row] = rows(notice, "err")
        notice.ok("retry_message", {"msg_id": row["msg_id"]})
        wait_until(lambda: hook.heard)
        [heard] = hook.heard
        assert "webhook-signature" in {name.lower() for name in heard.headers}
        assert heard.told["type"] == "notice.err"
        assert heard.told["data"]["queue"] == "t"
        assert heard.told["data"]["log"] == "one\ntwo words"


def test_another_queue_is_told_and_is_not_told_of_its_own_notices(tmp_path):
    root = {"on_err": {"queue": "alarm", "every": 0}}
    with (
        telling(tmp_path, root) as (_post, notice, queue),
        running_queue(tmp_path, "#!/bin/sh\necho err no >&3\n", "alarm") as alarm,
    ):
        queue.run(param1=FAIL)
        wait_until(lambda: alarm.ok("detail")["counts"]["err"] == 1)
        nothing_more(queue, notice)
        assert alarm.ok("detail")["owed"] == 0
        [row] = rows(alarm, "err")
        told = alarm.get(row["msg_id"])
        assert (told["param1"], told["param2"]) == ("t", "err")
        assert told["x_notice"] == "t/err"
        assert json.loads(told["param4"])["text"]


def test_what_a_person_has_cancelled_is_told_to_nobody(tmp_path):
    with telling(tmp_path, on_err=OPS) as (_post, notice, queue):
        msg_id = queue.send(param1="sleep 60")
        queue.until(msg_id, "run")
        queue.ok("cancel_message", {"msg_id": msg_id})
        queue.ended(msg_id)
        assert queue.ok("detail")["owed"] == 0
        assert notice.ok("detail")["counts"]["done"] == 0


def test_sendmail_that_refuses_for_now_is_asked_again(tmp_path):
    with telling(tmp_path, on_err=OPS) as (post, notice, queue):
        (post.box / "refuse").write_text("75")
        queue.send(param1=FAIL)

        def refused():
            [row] = rows(notice, "que")
            known = notice.get(row["msg_id"])
            return "mailbox unavailable" in json.dumps(known) and row["msg_id"]

        msg_id = wait_until(refused)
        (post.box / "refuse").unlink()
        notice.ok("run_message", {"msg_id": msg_id})
        until_told(post, 1)


def forged(notice, whom, matter, **story):
    """Send a message to the queue that brings notices; return its id."""
    params = {"param1": whom, "param2": "t", "param3": matter}
    text = json.dumps({"queue": "t", "state": "done", **story})
    fields = {"dest": "notice", **params, "param4": text}
    return short(notice.ok("create_message", fields))


def test_a_notice_that_an_operator_has_written_reaches_no_stranger(tmp_path):
    alarmed = "#!/bin/sh\necho done >&3\n"
    with (
        telling(tmp_path, on_output={"mail": OPS, "every": 60}) as (
            post,
            notice,
            queue,
        ),
        running_queue(tmp_path, alarmed, "alarm") as alarm,
    ):
        msg_id = queue.send(param1="echo secret; echo done >&3")
        until_told(post, 1)
        about = {"msg_id": msg_id, "printed": [0, 9999]}
        left = [forged(notice, "mail:eve@example.org", "output", **about)]
        forged(notice, f"mail:{OPS}, eve@example.org", "output", **about)
        left.append(forged(notice, f"mail:{OPS}", "err", **about))
        left.append(forged(notice, "queue:alarm", "output", **about))
        for each in left:
            notice.until(each, "err")
            assert "do not name it now" in notice.get(each)["status"]
        letters = until_told(post, 2)
        assert {letter["To"] for letter in letters} == {OPS}
        assert sum(alarm.ok("detail")["counts"].values()) == 0


def test_a_notice_gives_no_orders_to_the_cleaner(tmp_path):
    with (
        telling(tmp_path) as (_post, notice, _queue),
        running_queue(tmp_path, name="cleaner") as cleaner,
    ):
        msg_id = forged(notice, "queue:cleaner", "0")
        notice.until(msg_id, "err")
        assert "cleaner removes messages" in notice.get(msg_id)["status"]
        assert sum(cleaner.ok("detail")["counts"].values()) == 0


@pytest.mark.slow
def test_a_queue_that_is_told_and_does_not_exist_is_named(tmp_path):
    said = "on_err tells queue alarm, which does not exist"
    with telling(tmp_path, on_err={"queue": "alarm"}) as (_post, _notice, queue):
        assert said in queue.log()
        for verb in ("status", "doctor"):
            shown = rq(verb, root=tmp_path).stdout
            assert f"queue t: {said}: make it (`rq queue new alarm`)" in shown
        with running_queue(tmp_path, name="alarm"):
            assert said not in rq("status", root=tmp_path).stdout
