"""Run the parts of the test suite; close with one table and one line of counts.

A part is a folder of tests, or tools that read the code. A skip is written
`pytest.skip("WHY -> COMMAND")`: the table shows why, and the one command that gets what
was missing. Where nothing may be missing (CI=true, or root) a skip is a failure.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from checks import CHECKS, TOOLS
from owners import give_back
from processes import CHECKOUT, become_subreaper, call

SOAK = float(os.environ.get("RQ_SOAK_SECONDS", "600")) * 2 + 600
STRICT = os.environ.get("CI") == "true" or os.geteuid() == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One word of the command line: what it proves and what it takes."""

    name: str
    about: str
    folder: str = ""
    everyday: bool = True
    marker: str = ""
    limit: float = 900.0
    hang: float = 300.0  # seconds after which a test is ended and shows where it was
    parallel: int = 1  # most of these tests wait; files of tests run side by side
    # What the tests start; Debian's package of that name, or after a colon.
    programs: tuple[str, ...] = ()
    # Extras of pyproject.toml beyond those that every part needs.
    extras: tuple[str, ...] = ()


PARTS = (
    Part(name="lint", about="ruff, codespell, shellcheck, newlines"),
    Part(name="types", about="mypy --strict over rq/"),
    Part(name="imports", about="the rooms of ARCHITECTURE.md, by import-linter"),
    Part(name="unit", about="pure rooms", folder="unit"),
    Part(name="disk", about="the spool on a real disk", folder="disk"),
    Part(
        name="process",
        about="real children",
        folder="process",
        limit=1800.0,
        parallel=3,
        programs=("ruby", "perl", "node:nodejs", "busybox"),
    ),
    Part(
        name="system",
        about="the whole daemon",
        folder="system",
        parallel=3,
        programs=("ruby",),
    ),
    Part(
        name="web",
        about="REST, safety, files, the web as a child",
        folder="web",
        parallel=3,
        programs=("curl", "jq"),
    ),
    Part(
        name="browser",
        about="the pages in a headless Chromium",
        folder="browser",
        parallel=3,
        programs=("chromium", "chromedriver:chromium-driver", "npm"),
    ),
    Part(
        name="hosts",
        about="relay between hosts, as network namespaces",
        folder="hosts",
        programs=("ip:iproute2",),
    ),
    Part(
        name="spark",
        parallel=2,
        about="sources, sinks, history and jobs on Spark",
        folder="spark",
        limit=1800.0,
        hang=900.0,  # its waits are long: Spark takes minutes on a busy machine
        programs=("sftp:openssh-client",),
        extras=("spark", "spark-test"),
    ),
    Part(
        name="power",
        about="power cuts, enumerated",
        folder="power",
        limit=1800.0,
        hang=900.0,
        parallel=2,
        programs=("strace",),
    ),
    Part(
        name="faults",
        about="kill -9, crashes, planted bugs; RQ_FAULTS_EVERY=1: for hours",
        folder="faults",
        limit=36_000.0 if "RQ_FAULTS_EVERY" in os.environ else 1800.0,
        hang=36_000.0 if "RQ_FAULTS_EVERY" in os.environ else 600.0,
        parallel=3,
        programs=("strace",),
    ),
    Part(
        name="fuzz",
        about="bytes that nobody would send; RQ_FUZZ_EXAMPLES=N for more",
        folder="fuzz",
        parallel=2,
    ),
    Part(
        name="soak",
        about="a mixed load with faults; RQ_SOAK_SECONDS=N for longer",
        folder="soak",
        limit=SOAK,
        hang=SOAK,
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


@dataclass(slots=True)
class Row:
    """What the closing table says of a part."""

    part: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    whys: list[str] = field(default_factory=list)
    left_out: bool = False  # by --without: no failure anywhere

    def fail(self, why: str) -> None:
        self.failed += 1
        self.whys.append(why)


def main() -> int:
    options = parse()
    become_subreaper()
    rows = []
    with tempfile.TemporaryDirectory(prefix="rq-tests-") as scratch:
        for part in options.parts:
            print(f"\n== {part.name}: {part.about}", flush=True)
            rows.append(run(part, options, Path(scratch)))
            if options.exitfirst and rows[-1].failed:
                break
    return close(rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run_tests.sh",
        usage="./test/run_tests.sh [PART...] [-k EXPR] [-x] [--without PART]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="parts (none named: all but those on request):\n" + listing(),
    )
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument(
        "-k", metavar="EXPR", help="only tests that match, as in pytest"
    )
    parser.add_argument(
        "-x", dest="exitfirst", action="store_true", help="stop at the first failure"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PART",
        help="leave a part out, and do not install what it needs",
    )
    options = parser.parse_args()
    options.parts = chosen(options.parts, options.k)
    known(options.without)
    return options


def listing() -> str:
    return "\n".join(
        f"  {part.name:<9}{part.about}{'' if part.everyday else ' (on request)'}"
        for part in PARTS
    )


def chosen(names: list[str], expression: str | None) -> list[Part]:
    if names:
        return known(names)
    everyday = [part for part in PARTS if part.everyday]
    return [part for part in everyday if part.folder or not expression]


def known(names: list[str]) -> list[Part]:
    parts = {part.name: part for part in PARTS}
    for name in names:
        if name not in parts:
            there_are = ", ".join(parts)
            print(f"run_tests.sh: no part {name}; parts: {there_are}", file=sys.stderr)
            sys.exit(2)
    return [parts[name] for name in names]


def run(part: Part, options: argparse.Namespace, scratch: Path) -> Row:
    row = Row(part.name)
    started = time.monotonic()
    if part.name in options.without:
        row.skipped, row.left_out = 1, True
        row.whys.append(f"left out -> ./test/run_tests.sh {part.name}")
    elif part.folder:
        get_programs(part)
        if get_extras(part, row):
            run_pytest(part, options, scratch, row)
    else:
        run_checks(part, scratch, row)
    row.seconds = time.monotonic() - started
    return row


def run_checks(part: Part, scratch: Path, row: Row) -> None:
    check = CHECKS[part.name]
    for name, trouble in check(partial(call, limit=part.limit, scratch=scratch)):
        if trouble is None:
            row.passed += 1
        else:
            row.fail(f"{name}: {trouble}")


def get_programs(part: Part) -> None:
    """Install what root may install; tests skip themselves for what stays missing."""
    missing = [
        name.rpartition(":")[2]
        for name in part.programs
        if shutil.which(name.partition(":")[0]) is None
    ]
    if not missing or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print(f"installing {', '.join(missing)} with apt-get", flush=True)
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]
    for words in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        subprocess.run(
            [*apt, *words],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


def get_extras(part: Part, row: Row) -> bool:
    """Install what pyproject.toml asks for this part alone; say it if that fails."""
    if not part.extras:
        return True
    command = [sys.executable, "-I", CHECKOUT / "bin" / "bootstrap.py", *part.extras]
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 0:
        return True
    row.skipped = 1
    row.whys.append(f"{part.extras[0]} could not be installed -> ./bin/rq up --spark")
    return False


def run_pytest(
    part: Part, options: argparse.Namespace, scratch: Path, row: Row
) -> None:
    folder = CHECKOUT / "test" / part.folder
    if not folder.is_dir():
        row.fail(f"there is no test/{part.folder}")
        return
    report = scratch / f"{part.name}.xml"
    command = [TOOLS / "python", "-s", "-m", "pytest", "-q", f"--junitxml={report}"]
    command += ["-o", f"faulthandler_timeout={part.hang}"]
    command += ["-m", part.marker] if part.marker else []
    command += ["-k", options.k] if options.k else []
    command += ["-x"] if options.exitfirst else []
    if part.parallel > 1:
        command += ["-n", str(part.parallel), "--dist", "loadfile"]
    trouble = call([*command, folder], part.limit, scratch)
    count(report, row)
    if trouble == "exit status 5":  # pytest's word for: nothing was selected
        if not options.k:
            row.fail(f"no tests in test/{part.folder}")
    elif trouble and not (trouble == "exit status 1" and row.failed):
        row.fail(f"pytest: {trouble}")


def count(report: Path, row: Row) -> None:
    if not report.exists() or not report.stat().st_size:
        return  # pytest did not come to its end, as its exit status tells
    for case in ET.parse(report).iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            row.failed += 1
        elif skip is not None and skip.get("type") != "pytest.xfail":
            row.skipped += 1
            row.whys.append(skip.get("message", ""))
        else:
            row.passed += 1


def close(rows: list[Row]) -> int:
    """Print the table and the line of counts; return the exit status."""
    if STRICT:
        for row in rows:
            if not row.left_out:
                row.failed, row.skipped = row.failed + row.skipped, 0
    print(f"\n{'part':<9}{'passed':>7}{'failed':>7}{'skipped':>8}{'seconds':>9}  why")
    for row in rows:
        numbers = f"{row.passed:>7}{row.failed:>7}{row.skipped:>8}{row.seconds:>9.1f}"
        first, *rest = [explained(why) for why in dict.fromkeys(row.whys)] or [""]
        print(f"{row.part:<9}{numbers}  {first}".rstrip())
        for why in rest:
            print(f"{'':<42}{why}")
    passed = sum(row.passed for row in rows)
    failed = sum(row.failed for row in rows)
    skipped = sum(row.skipped for row in rows)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if passed and not failed else 1


def explained(why: str) -> str:
    reason, arrow, command = why.partition(" -> ")
    return f"{reason}; get it: {command}" if arrow else reason


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        give_back(CHECKOUT)
