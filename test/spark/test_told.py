"""What a person reads when Spark cannot: one sentence, whatever was in its way."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import psutil
import pytest
from harness.journal_files import START, JournalFiles, life
from harness.waiting import wait_until

from rq.errors import BadConfig, Damaged
from rq.layout import Root
from rq.scripts.pipe import Verb
from rq.spark import bronze, failures, jobs, machine, rounds
from rq.spark.machine import Engine
from rq.spark.rounds import Settings

PATIENCE = 240.0  # seconds: a busy machine starts Spark slowly

# As Spark 4.3 says it.
CALL = "An error occurred while calling o197.collectToPython.\n: "
READ = "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error "
STREAM = "[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: "
TOLD = {
    f"{STREAM}[FOREACH_BATCH_USER_FUNCTION_ERROR] ...\n"
    "Caused by: java.io.IOException: No space left on device": "the disk is full, ",
    f"{CALL}java.lang.OutOfMemoryError: Java heap space\n\tat a.b": "ran out of memory: ",
    "Error while sending or receiving": "Java ended in the middle of its work",
    f"{CALL}{READ}while reading file file:///r/date=D/batch=0/part-0.zstd.parquet. "
    "SQLSTATE: KD001": "^/r/date=D/batch=0/part-0.zstd.parquet is damaged: remove it",
    f"{STREAM}Failed to read log file file:/r/commits/0. Incomplete log file\nmore": (
        "ended the round: Failed to read log file file:/r/commits/0. Incomplete log "
        "file; if it does so again, `rq spark history --rebuild`"
    ),
    f"{STREAM}[STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE] Streaming Runner "
    "initialization failed. Socket connection timeout.": "^Python did not start in the",
    f"{CALL}java.net.SocketTimeoutException: Read timed out": "try again later",
    f"{STREAM}Python worker failed to connect back.": "too much to do, try again later",
    f"{STREAM}An exception ...\nrq.errors.Damaged: event 7 is missing\nmore": (
        "^event 7 is missing$"
    ),
}


@pytest.mark.parametrize(("text", "told"), TOLD.items(), ids=range(len(TOLD)))
def test_the_end_of_a_round_is_told_in_one_sentence(text, told):
    said = failures.of_round(RuntimeError(text))
    assert "\n" not in said
    begins, ends = told.startswith("^"), told.endswith("$")
    told = told.strip("^$")
    assert told in said
    assert not begins or said.startswith(told)
    assert not ends or said.endswith(told)


def test_a_python_that_was_late_is_found_below_what_spark_wraps_it_in():
    error = RuntimeError("[STREAM_FAILED] Query [id = 1] terminated with exception: no")
    error._cause = RuntimeError("Python worker failed to connect back.")
    assert "--rebuild" not in failures.of_round(error)
    assert machine.failure(error, Engine("local[2]", "1g")) == failures.LATE


def test_a_store_that_did_not_answer_a_task_is_asked_again():
    text = f"{CALL}Job aborted ...\n  File x\nrq.errors.Unreachable: s3://b/: curlCode: 7\n"
    assert jobs.verdict(RuntimeError(text)) == (
        Verb.RESEND,
        "60-s3://b/: curlCode: 7",
    )
    text = text.replace("Unreachable", "BadInput")
    assert jobs.verdict(RuntimeError(text)) == (Verb.ERR, "s3://b/: curlCode: 7")


def test_a_job_is_told_so_too_and_its_own_errors_stay_its_own():
    error = RuntimeError(f"{CALL}java.io.IOException: No space left on device")
    assert jobs.last_line(error).startswith("the disk is full, no more could be")
    error = RuntimeError(f"{CALL}org.apache.spark.SparkException: Job aborted.\n\tat x")
    assert jobs.last_line(error).endswith(
        "org.apache.spark.SparkException: Job aborted."
    )
    error = ConnectionRefusedError(111, "Connection refused")
    assert jobs.last_line(error).endswith("[Errno 111] Connection refused")


# ---- a history whose files are damaged


@pytest.fixture
def journal(spark, tmp_path):
    """Give a journal of which a round has taken in what there was."""
    made = JournalFiles(Root(tmp_path), "a", "aa")
    more(made, 20)
    rounds.run_round(spark, Root(tmp_path))
    return made


def more(journal, number):
    journal.seal(
        event
        for index in range(number)
        for event in life(f"m{journal.last + index}", START + index * 10**6)
    )


@pytest.mark.parametrize("damage", ["empty", "torn"])
def test_a_damaged_file_of_parquet_is_named_and_what_the_sentence_says_mends_it(
    spark, tmp_path, journal, damage
):
    root = Root(tmp_path)
    source = bronze.place(root).bronze("0001")
    [file] = source.glob("date=*/batch=*/*.parquet")
    file.write_bytes(b"" if damage == "empty" else file.read_bytes()[:300])
    more(journal, 5)
    with pytest.raises(Damaged) as failed:
        rounds.run_round(spark, root)
    assert str(failed.value) == failures.damaged(file)
    file.unlink()
    done = rounds.run_round(spark, root, Settings(rebuild=True))
    assert done.counts["a"] == {"done": 25}


def test_a_damaged_checkpoint_is_told_with_what_mends_it(spark, tmp_path, journal):
    root = Root(tmp_path)
    (bronze.place(root).checkpoint("0001") / "commits/0").write_bytes(b"")
    more(journal, 5)
    with pytest.raises(Damaged, match=r"--rebuild` makes the history anew$"):
        rounds.run_round(spark, root)
    done = rounds.run_round(spark, root, Settings(rebuild=True))
    assert done.counts["a"] == {"done": 25}


def test_a_history_that_does_not_say_what_counts_is_not_guessed_at(tmp_path):
    place = bronze.place(Root(tmp_path))
    place.path.mkdir(parents=True)
    assert place.current() == bronze.Current()
    place.current_file.write_text("{")
    with pytest.raises(BadConfig, match=r"current\.json is not JSON"):
        place.current()


# ---- a Java that cannot


def start(root, env):
    words = ["-m", "rq.cli", "--root", str(root), "spark", "history"]
    return subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_too_little_memory_is_told_in_one_sentence(tmp_path, spark_env):
    env = {**spark_env, "RQ_SPARK_CONF": '{"spark.driver.memory": "1m"}'}
    with start(tmp_path, env) as process:
        said, told = process.communicate(timeout=PATIENCE)
    assert process.returncode not in (0, 70)
    assert said == ""
    assert told.splitlines() == [
        "starting Spark",
        "rq: Spark did not start, its memory is too small: "
        "let spark.driver.memory be 1g or more",
    ]


def test_a_java_that_is_killed_is_told_in_one_sentence(tmp_path, spark_env):
    more(JournalFiles(Root(tmp_path), "a", "aa"), 500)
    local = Root(tmp_path).spark / "local"
    with start(tmp_path, spark_env) as process:
        wait_until(lambda: any(local.glob("*/blockmgr-*")), PATIENCE)
        for one in psutil.Process(process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        told = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode not in (0, 70)
    assert "Java ended in the middle of its work" in told.splitlines()[-1]
