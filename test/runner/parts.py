"""The parts of the test suite: what each proves, and what it takes."""

import os
from dataclasses import dataclass

SOAK = float(os.environ.get("RQ_SOAK_SECONDS", "600")) * 2 + 600
WHOLE = 37 * 60.0  # seconds that all parts may take in CI
AROUND_SOAK = 60.0  # seconds to start what is soaked, and to look at it in the end
BROKER_SHARE = 0.25  # of that time: the broker is soaked after the queues


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One word of the command line: what it proves and what it takes."""

    name: str
    about: str
    folder: str = ""
    everyday: bool = True
    marker: str = ""
    budget: float = 0.0  # seconds of two cores, in CI
    thinned: str = ""  # what is run of it every day
    daily: int = 1  # of so many files one is run where no part is named; in CI all are
    thinned_in_ci: str = ""  # what is run of it for each commit
    takes_rest: bool = False  # in CI: as long as the other parts have left
    limit: float = 900.0
    hang: float = 300.0  # seconds after which a test is ended and shows where it was
    parallel: int = 1  # most of these tests wait; files of tests run side by side
    dealt: str = "loadfile"  # how: pytest-xdist's --dist
    # What the tests start; Debian's package of that name, or after a colon.
    programs: tuple[str, ...] = ()
    # Extras of pyproject.toml beyond those that every part needs.
    extras: tuple[str, ...] = ()


PARTS = (
    Part(name="lint", budget=10, about="ruff, codespell, shellcheck, newlines"),
    Part(name="types", budget=20, about="mypy --strict over rq/"),
    Part(
        name="imports",
        budget=5,
        about="the rooms of ARCHITECTURE.md, by import-linter",
    ),
    Part(name="unit", budget=35, about="pure rooms", folder="unit", parallel=2),
    Part(
        name="disk",
        budget=70,
        about="the spool on a real disk",
        folder="disk",
        parallel=2,
    ),
    Part(
        name="process",
        budget=350,
        about="real children",
        thinned="a third of the slow tests",
        daily=6,
        thinned_in_ci="a third of the slow tests",
        folder="process",
        limit=1800.0,
        parallel=4,
        programs=(
            *("ruby", "perl", "node:nodejs", "npm", "php:php-cli", "busybox", "curl"),
            "redis-cli:redis-tools",
        ),
    ),
    Part(
        name="system",
        budget=75,
        about="the whole daemon",
        thinned="a third of the slow tests; half a minute of random kills",
        daily=5,
        thinned_in_ci="a third of the slow tests",
        folder="system",
        parallel=4,
        programs=("ruby", "curl", "promtool:prometheus"),
    ),
    Part(
        name="web",
        budget=130,
        about="REST, safety, files, the web as a child",
        thinned="a third of the slow tests",
        daily=5,
        thinned_in_ci="a third of the slow tests",
        folder="web",
        parallel=4,
        programs=("curl", "jq"),
    ),
    Part(
        name="browser",
        budget=85,
        about="the pages in a headless Chromium",
        thinned="a third of the slow tests",
        daily=4,
        thinned_in_ci="a third of the slow tests",
        folder="browser",
        parallel=3,
        programs=("chromium", "chromedriver:chromium-driver", "npm"),
    ),
    Part(
        name="packages",
        budget=90,
        about="wheel, Debian package and container, installed into places of their own",
        thinned="a third of the slow tests",
        daily=3,
        thinned_in_ci="a third of the slow tests; a Debian with every third commit",
        folder="packages",
        limit=1800.0,
        hang=600.0,
        parallel=2,
        programs=(
            *("pipx", "zsh", "fish", "mandoc", "mmdebstrap", "ip:iproute2"),
            "systemd-analyze:systemd",
        ),
        extras=("package",),
    ),
    Part(
        name="hosts",
        budget=50,
        about="relay between hosts, as network namespaces",
        folder="hosts",
        programs=("ip:iproute2",),
    ),
    Part(
        name="spark",
        budget=700,
        parallel=2,  # with more, Python is slow to call back, and Spark waits ten seconds
        about="sources, sinks, history and jobs on Spark",
        thinned="a third of the slow tests",
        thinned_in_ci="a third of the slow tests; the driver of a stream dies at one of two points",
        folder="spark",
        limit=1800.0,
        hang=900.0,  # its waits are long: Spark takes minutes on a busy machine
        programs=(
            *("sftp:openssh-client", "chromium", "chromedriver:chromium-driver"),
            "npm",
        ),
        extras=("spark", "spark-test"),
    ),
    Part(
        name="power",
        budget=110,
        about="power cuts, enumerated",
        thinned="a ninth of the stories, an eighth of those of whole queues",
        daily=5,
        thinned_in_ci="a third of the stories, each on one of two kinds of disks",
        folder="power",
        limit=1800.0,
        hang=900.0,
        parallel=2,
        programs=("strace",),
    ),
    Part(
        name="faults",
        budget=230,
        about="kill -9, crashes, planted bugs; RQ_FAULTS_EVERY=1: for hours",
        thinned="a third of the slow tests, a sixteenth of the planted bugs, half of the "
        "calls that fail once",
        daily=5,
        thinned_in_ci="a twelfth of the planted bugs, a third of the slow tests",
        folder="faults",
        limit=36_000.0 if "RQ_FAULTS_EVERY" in os.environ else 1800.0,
        hang=36_000.0 if "RQ_FAULTS_EVERY" in os.environ else 600.0,
        parallel=3,
        programs=("strace",),
    ),
    Part(
        name="fuzz",
        budget=40,
        about="bytes that nobody would send; RQ_FUZZ_EXAMPLES=N for more",
        folder="fuzz",
        parallel=2,
    ),
    Part(
        name="sim",
        budget=65,
        about="nodes of a broker in a world of chance; RQ_SIM_SEEDS=N for more",
        thinned="a quarter of the seeds, a third of the slow tests",
        thinned_in_ci="half of the seeds, a third of the slow tests",
        folder="sim",
        limit=36_000.0 if "RQ_SIM_SEEDS" in os.environ else 900.0,
        hang=36_000.0 if "RQ_SIM_SEEDS" in os.environ else 300.0,
        parallel=2,
        dealt="worksteal",  # the shares of one file
    ),
    Part(
        name="soak",
        budget=630,
        about="a mixed load with faults; RQ_SOAK_SECONDS=N for longer",
        thinned="half a minute, not ten minutes",
        takes_rest=True,
        folder="soak",
        limit=SOAK,
        hang=SOAK,
    ),
    Part(
        name="mutants",
        about="bugs planted by chance; RQ_MUTANTS=N, RQ_TEST_SEED=N for others",
        folder="faults/mutants",
        everyday=False,
        marker="mutants",
        limit=36_000.0,
        hang=36_000.0,
    ),
    Part(
        name="stress",
        about="long and random",
        folder=".",
        everyday=False,
        marker="stress",
        limit=3600.0,
        hang=3600.0,
    ),
    Part(
        name="bench",
        about="numbers, not assertions",
        folder="bench",
        everyday=False,
        marker="bench",
        limit=3600.0,
        hang=3600.0,
    ),
)


def soak_seconds(elapsed: float) -> float:
    """Return how long the soak of CI lasts when all before it took `elapsed` seconds."""
    left = (WHOLE - elapsed - AROUND_SOAK) / (1.0 + BROKER_SHARE)
    return min(600.0, max(60.0, left))
