"""A job's own packages: an environment for what it asks for, made once, whole or not there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile

import pytest
from harness.checkout import CHECKOUT
from harness.processes import acting_as, open_to_others
from harness.queues import running_queue
from harness.spark_jobs import prepared, tools
from harness.waiting import wait_until

from rq.errors import BadConfig, BadInput, Unreachable
from rq.layout import Root
from rq.proc import locks
from rq.spark import job_file, packages

PATIENCE = 120.0


def wheel(place, name, text, version="1.0"):
    """Make a wheel with one module."""
    path = place / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", text)
        file.writestr(f"{info}/METADATA", about)
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def place(tmp_path):
    """Give a directory with a wheel, and a script."""
    (tmp_path / "own").mkdir()
    wheel(tmp_path / "own", "rq_greeting", "TEXT = 'hello'\n")
    return tmp_path / "own"


def script(place, *lines, text=""):
    path = place / "run"
    path.write_text("\n".join(["#!/usr/bin/env rq-spark", *lines, "", text]))
    return path


def header(*lines):
    return ["# /// script", *(f"# {line}".rstrip() for line in lines), "# ///"]


def test_what_a_script_asks_for_stands_in_it_or_beside_it(place):
    assert packages.of_script(script(place)) is None
    (place / "requirements.txt").write_text("a==1  # why\n--no-index\nb\n")
    beside = packages.of_script(script(place))
    assert beside.names == "a==1, b"
    own = packages.of_script(
        script(place, *header('requires-python = ">=3.11"', "dependencies = ['c>2']"))
    )
    assert own.text == "c>2\n"
    assert own.digest != beside.digest
    assert packages.of_script(script(place, *header("dependencies = []"))) is None


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            header('requires-python = ">=4"'),
            r"asks for Python '>=4', and RQ runs on 3\.",
        ),
        (header('requires-python = "new"'), "'new' is not such as >=3.11"),
        (header("requires-python = 3"), "asks for Python 3, and"),
        (header("dependencies = 'a'"), r"is no list such as \[\"matplotlib"),
        (header("dependencies = [1]"), "run: 1 in dependencies is no package"),
        *(
            (
                header(f"dependencies = ['a', \"{name}\"]"),
                "in dependencies is no package",
            )
            for name in (
                "",
                " ",
                "# a",
                "; rm -rf /",
                "-r /etc/passwd",
                " -e .",
                "\\t--pre",
                "a\\n--pre",
                "a\\r--index-url http://h/",
                "a\\u2028-e .",
                "a --config-settings=b=c",
                "a \\\\",
                "a @ file:///tmp/a",
                "./a",
                "/etc/passwd",
                "http://h/a.whl",
                "${HOME}",
            )
        ),
        (header("dependencies = "), "run, `# /// script`: Invalid value"),
        (["# /// script", "# a = 1"], "and no `# ///` to end it"),
        ([*header(), "", *header()], "`# /// script` twice"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(place, lines, sentence):
    with pytest.raises(BadInput, match=sentence):
        packages.of_script(script(place, *lines))


@pytest.mark.parametrize(
    "line",
    [
        "-r more.txt",
        "-rmore.txt",
        "--req more.txt",
        "--c\\\nonstraint more.txt",
        "a \\\n-e .",
        "--editable=.",
        ".",
        "./a.whl",
        "a @ file:///tmp/a",
    ],
)
def test_a_file_beside_it_says_all_by_itself(place, line):
    (place / "requirements.txt").write_text(f"a\n {line}\n")
    with pytest.raises(BadInput, match="it must say all by itself"):
        packages.of_script(script(place))


def test_a_file_beside_it_may_say_where_packages_are_and_what_they_hash_to(place):
    text = (
        "--index-url https://h/simple\n-f .\n--require-hashes\n# why\n"
        "a[b]>=1, <2 ; python_version < '4' \\\n  --hash=sha256:00 --hash=sha256:01\n"
        "\tc\t>2  # it\nd @ https://h/d.whl#sha256=00\n"
    )
    (place / "requirements.txt").write_text(f"\ufeff{text}")
    assert packages.of_script(script(place)).text == text


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user -> run as root")
def test_a_job_of_another_user_is_told_so_in_one_sentence(tmp_path, monkeypatch):
    root = tmp_path / "root"
    (root / "spark").mkdir(parents=True)
    open_to_others(tmp_path)
    open_to_others(root)
    monkeypatch.setenv("RQ_ROOT", str(root))
    (tmp_path / "run").write_text("from rq.spark import job\n@job\ndef run(q): pass\n")
    with (
        acting_as(4321, 4321),
        pytest.raises(
            BadConfig, match=r'/spark: Permission denied; .*: take "user" out'
        ),
    ):
        job_file.load(tmp_path / "run", print)


def wanted(place, name="rq_greeting"):
    text = f"--no-index\n--find-links {place}\n{name}\n"
    return packages.Requirements(text, place)


def test_packages_are_installed_once(place, tmp_path):
    told = []
    first = packages.ready(Root(tmp_path), wanted(place), told.append)
    assert (first / "rq_greeting.py").read_text() == "TEXT = 'hello'\n"
    assert told[0] == "installing rq_greeting (once)"
    (place / "rq_greeting-1.0-py3-none-any.whl").unlink()
    assert packages.ready(Root(tmp_path), wanted(place), pytest.fail) == first


def test_what_cannot_be_installed_leaves_nothing_and_says_why(place, tmp_path):
    with pytest.raises(BadInput) as failed:
        packages.ready(Root(tmp_path), wanted(place, "rq_nothing"), print)
    text = str(failed.value)
    assert text == (
        "rq_nothing cannot be installed for this job: No matching distribution found for "
        "rq_nothing"
    )
    assert [p.name for p in (tmp_path / "spark/packages").iterdir()] == ["lock"]


MAKE = """
import sys
from pathlib import Path
sys.path.insert(0, {checkout!r})
from rq.layout import Root
from rq.spark import packages
place = Path({place!r})
text = "--no-index\\n--find-links %s\\nrq_greeting\\n" % place
wanted = packages.Requirements(text, place)
print(packages.ready(Root(Path({root!r})), wanted, lambda text: print("told", text)))
"""


def maker(place, root, **env):
    code = MAKE.format(checkout=str(CHECKOUT), place=str(place), root=str(root))
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **env},
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("script", "kind", "why"),
    [
        (
            "echo 'OSError: [Errno 28] No space left on device: x'",
            Unreachable,
            "is full",
        ),
        ("kill -9 $$", Unreachable, "pip was ended by SIGKILL"),
        ("echo 'ERROR: Exception:'; echo 'KeyError: a'", BadInput, "job: KeyError: a$"),
        ("echo 'ERROR: No matching b'; echo c", BadInput, "job: No matching b$"),
        ("true", BadInput, "pip is not there"),
    ],
)
def test_what_ended_pip_is_told_and_passes_if_it_is_the_machine(
    place, tmp_path, script, kind, why
):
    command = ["/bin/sh", "-c", f"{script}; exit 2", str(tmp_path / "list")]
    with locks_of(tmp_path) as turn, pytest.raises(kind, match=why):
        packages._pip(command, wanted(place), print, turn)


@contextlib.contextmanager
def locks_of(tmp_path):
    turn = locks.lock_waiting(tmp_path / "turn")
    yield turn
    os.close(turn)


def test_what_pip_writes_meanwhile_is_gone_with_the_rest(place, tmp_path):
    seen = []
    root = Root(tmp_path / "root")
    lib = packages.ready(root, wanted(place), seen.append)
    assert sorted(path.name for path in lib.parent.iterdir()) == [
        "lib",
        "lock",
        "requirements.txt",
    ]


def test_two_processes_make_them_once_and_a_killed_one_leaves_no_half(place, tmp_path):
    """The killed one is in the middle of its installation; what it has left counts for
    nothing, and two that come at once make the whole in one go."""
    own = tmp_path / "spark/packages" / wanted(place).digest
    half = own.with_name(f"{own.name}.new")
    first = maker(place, tmp_path)
    wait_until(half.exists, PATIENCE)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert not own.exists()
    (half / "lib").mkdir(exist_ok=True)
    (half / "lib/rq_greeting.py").write_text("TEXT = 'half'\n")

    both = [maker(place, tmp_path) for _ in range(2)]
    texts = [process.communicate(timeout=PATIENCE)[0] for process in both]
    assert sum("told installing" in text for text in texts) == 1
    assert all(f"{own}/lib" in text for text in texts)
    assert (own / "lib/rq_greeting.py").read_text() == "TEXT = 'hello'\n"
    assert not half.exists()


def test_those_that_nobody_uses_are_removed_when_another_is_made(place, tmp_path):
    unused, used = (tmp_path / "spark/packages" / name for name in ("a" * 32, "b" * 32))
    for path in (unused, used):
        path.mkdir(parents=True)
        (path / "lock").touch()
        long_ago = time.time() - 40 * 86400
        os.utime(path, (long_ago, long_ago))
    held = locks.lock_shared(used / "lock")
    packages.ready(Root(tmp_path), wanted(place), print)
    os.close(held)
    assert used.exists()
    assert not unused.exists()


JOB = """
import rq_greeting
from rq.spark import job

@job(engine="duckdb")
def run(q):
    q.attach(rq_greeting.TEXT, "said.txt")
    q.send("box")
"""


def test_a_job_of_a_queue_has_its_packages(place, tmp_path):
    """They are installed with its first message, which tells so."""
    text = "\n".join(
        ["#!/usr/bin/env rq-spark", *header('dependencies = ["rq_greeting"]'), JOB]
    )
    env = {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin"}
    env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(place)}
    settings = {"exec_prefix": "", "env_vars": env}
    with (
        running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", "box") as box,
        running_queue(tmp_path, text, "own", **settings) as queue,
    ):
        for _ in range(2):
            msg_id = prepared(queue, {"a": b"a line"})
            ended = queue.ended(msg_id, seconds=PATIENCE)
            assert ended["status"].startswith("done - sent box/")
        made = list(box.root.path.glob("queue/box/*/**/attach/said.txt"))
        assert [path.read_text() for path in made] == ["hello"] * 2
        assert len(list((box.root.path / "spark/packages").glob("*/lib"))) == 1


def test_a_job_that_stays_has_what_is_asked_for_now(place, tmp_path):
    """The list beside the script changes, and the script does not: the next message has
    the new packages, and it is its first attempt."""
    wheel(place, "rq_greeting", "TEXT = 'hello again'\n", "2.0")
    env = {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin", "PIP_FIND_LINKS": str(place)}
    settings = {"exec_prefix": "", "env_vars": {**env, "PIP_NO_INDEX": "1"}}
    settings |= {"worker": "persistent", "num_workers": 1}
    text = f"#!/usr/bin/env rq-spark\n{JOB}"
    with (
        running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", "box") as box,
        running_queue(tmp_path, text, "own", **settings) as queue,
    ):
        beside = queue.script.with_name(packages.FILE)
        for version in ("1.0", "2.0", "2.0"):
            beside.write_text(f"rq_greeting=={version}\n")
            msg_id = prepared(queue, {"a": b"a line"})
            ended = queue.ended(msg_id, seconds=PATIENCE)
            assert ended["status"].startswith("done - sent box/")
            assert ended["count"] == 0

        def said():
            return sorted(
                path.read_text()
                for path in box.root.path.glob("queue/box/done/**/attach/said.txt")
            )

        wait_until(lambda: len(said()) == 3, PATIENCE)
        assert said() == ["hello", "hello again", "hello again"]


ON_SPARK = """
from rq.spark import job, F

@job
def run(q):
    spark = q.spark

    @F.udf("string")
    def said(number):
        import rq_greeting
        return f"{rq_greeting.TEXT} from {rq_greeting.__file__}"

    texts = [row[0] for row in spark.range(1).select(said("id")).collect()]
    q.attach(texts[0], "said.txt")
    q.send("box")
"""


@pytest.mark.slow
def test_tasks_on_a_cluster_have_them_too(java_home, place, tmp_path):
    from harness.spark_cluster import cluster_at

    script(place, *header('dependencies = ["rq_greeting"]'), text=ON_SPARK)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a").write_text("a line\n")
    with cluster_at(tmp_path) as cluster:
        env = cluster.environment(tmp_path / "root")
        env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(place)}
        command = [sys.executable, "-m", "rq.cli", "--root", str(tmp_path / "root")]
        command += ["spark", "try", str(place / "run"), "--messages", "logs"]
        done = subprocess.run(
            ["timeout", "200", *command],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "rq-try/results/said.txt").read_text()
    assert text.startswith("hello from ")
    assert "/rq-packages/" in text


def test_a_pip_that_says_nothing_is_ended(tmp_path, monkeypatch):
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(packages, "_command", lambda *_: [*sleep, str(tmp_path / "x")])
    monkeypatch.setattr(packages, "_SILENT", 0.3)
    wanted = packages.Requirements("matplotlib\n", tmp_path)
    with pytest.raises(
        Unreachable, match="pip has said nothing for 0 s, and was ended"
    ):
        packages.ready(Root(tmp_path), wanted, lambda _: None)
