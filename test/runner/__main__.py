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
from functools import partial
from pathlib import Path

import commit
import flaky
import table
from checks import CHECKS, TOOLS
from owners import give_back
from parts import PARTS, Part, soak_seconds
from processes import CHECKOUT, become_subreaper, call, end_leftovers, take_signals
from table import Row

BEGUN = time.monotonic()
# Of so many slow tests one is run every day, and in CI others with each commit; prime to
# what else is shared.
SLOW_SHARE = 3


def main() -> int:
    options = parse()
    become_subreaper()
    if options.all:
        os.environ.update({"CI": "true", commit.NAME: ""})
    commit.name_it()
    rows = []
    scratch = Path(tempfile.mkdtemp(prefix="rq-tests-"))
    try:
        for part in options.parts:
            print(f"\n== {part.name}: {part.about}", flush=True)
            rows.append(run(part, options, scratch))
            if options.exitfirst and rows[-1].failed:
                break
    finally:
        failed = any(row.failed for row in rows)
        if failed:
            print(f"\nwhat the failed tests have left: {scratch}", flush=True)
        else:
            remove(scratch)
    return table.close(rows, strict=is_full() or os.geteuid() == 0)


def is_full() -> bool:
    """Return whether this is a run of CI, or of all."""
    return os.environ.get("CI") == "true"


def remove(directory: Path) -> None:
    """Remove a directory, and trees in it that are too deep for Python."""
    subprocess.run(["rm", "-rf", "--", directory], check=False)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run_tests.sh",
        usage="./test/run_tests.sh [PART...] [-k EXPR] [-x] [--all] [--no-retry] "
        "[--without PART]",
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
        "--all", action="store_true", help="thin nothing, as CI would for no commit"
    )
    parser.add_argument(
        "--no-retry", action="store_true", help="a flaky test is a failed one"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PART",
        help="leave a part out, and do not install what it needs",
    )
    options = parser.parse_args()
    options.is_named = bool(options.parts or options.k)
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
    row = Row(part.name, budget=part.budget)
    started = time.monotonic()
    if part.name in options.without:
        row.skipped, row.left_out = 1, True
        row.whys.append(f"left out -> ./test/run_tests.sh {part.name}")
    elif part.folder:
        if part.takes_rest and is_full() and not options.all:
            take_rest(row)
        get_programs(part)
        if get_extras(part, row):
            run_pytest(part, options, scratch, row)
    else:
        run_checks(part, scratch, row)
    row.seconds = time.monotonic() - started
    if not row.left_out:
        row.whys += thinned(part, file_share(part, options))
    if part.budget and row.seconds > part.budget:
        row.whys.append(f"{row.seconds - part.budget:.0f} s over its budget")
    return row


def thinned(part: Part, files: int) -> list[str]:
    """Return what is said of a part of which not all is run."""
    if is_full():
        why = commit.taken(part.thinned_in_ci)
        return [why] if why else []
    shares = [f"one file of {files}"] if files > 1 else []
    shares += [part.thinned] if part.thinned else []
    return [f"{', '.join(shares)}; more with CI=true"] if shares else []


def take_rest(row: Row) -> None:
    """Let the soak last as long as is left of CI's time, unless somebody said how long."""
    if "RQ_SOAK_SECONDS" in os.environ:
        return
    seconds = soak_seconds(time.monotonic() - BEGUN)
    os.environ["RQ_SOAK_SECONDS"] = f"{seconds:.0f}"
    row.whys.append(f"{seconds:.0f} s of load, as the other parts have left")


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
    report, cache = scratch / f"{part.name}.xml", scratch / f"{part.name}.cache"
    command = pytest(part, cache, scratch / part.name)
    command += [f"--junitxml={report}"]
    command += ["--durations=8", "--durations-min=2"]  # where the time goes
    command += selection(part, options)
    command += ["-x"] if options.exitfirst else []
    if part.parallel > 1:
        command += ["-n", str(part.parallel), "--dist", part.dealt]
        command += ["--no-loadscope-reorder"]  # test/conftest.py orders them
    trouble = call([*command, folder], part.limit, scratch)
    count(report, row)
    if not row.failed:
        remove(scratch / part.name)
    as_it_is = options.no_retry or options.exitfirst
    if trouble == "exit status 1" and not as_it_is:
        retry(part, scratch, row)
        trouble = trouble if row.failed else None
    if trouble == "exit status 5":  # pytest's word for: nothing was selected
        if not options.k:
            row.fail(f"no tests in test/{part.folder}")
    elif trouble and not (trouble == "exit status 1" and row.failed):
        row.fail(f"pytest: {trouble}")


def selection(part: Part, options: argparse.Namespace) -> list[str]:
    """Return the words that say which tests of a part are run."""
    if options.k:  # who names tests wants to see them run
        return ["-k", options.k]
    shares = {"slow_share": SLOW_SHARE, "file_share": file_share(part, options)}
    return [word for name, of in shares.items() for word in ("-o", f"{name}={of}")]


def file_share(part: Part, options: argparse.Namespace) -> int:
    """Return of how many files one is run: who names a part wants to see all of it."""
    return 1 if options.is_named or is_full() else part.daily


def pytest(part: Part, cache: Path, place: Path) -> list[str | Path]:
    """Return the words that run a part, whose tests keep their files in `place`: the place
    of all of a user's runs would be closed to others by each run that begins."""
    command = [TOOLS / "python", "-s", "-m", "pytest", "-q", "-o", f"cache_dir={cache}"]
    command += ["-o", f"faulthandler_timeout={part.hang}", f"--basetemp={place}"]
    return [*command, "-m", part.marker] if part.marker else command


def retry(part: Part, scratch: Path, row: Row) -> None:
    """Run what failed again; what passes then counts as passed, and is told of."""

    def passes(test: str) -> bool:
        print(f"\n{part.name}: again, alone: {test}", flush=True)
        place = Path(tempfile.mkdtemp(prefix="again-", dir=scratch))
        alone, report = Row(part.name), place / "report.xml"
        command = [*pytest(part, place / "cache", place / "t"), test]
        trouble = call([*command, f"--junitxml={report}"], part.limit, scratch)
        count(report, alone)
        return trouble is None and alone.passed > 0 and not alone.skipped

    failed = flaky.failed_tests(scratch / f"{part.name}.cache")
    if len(failed) != row.failed:
        return  # a failure that is no test's
    for test in flaky.find(failed, passes):
        row.failed -= 1
        row.passed += 1
        row.whys.append(
            f"flaky, failed once and then passed {flaky.AGAIN} times: {test}"
        )


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


if __name__ == "__main__":
    take_signals()
    try:
        sys.exit(main())
    except KeyboardInterrupt as signalled:
        end_leftovers(grace=0.0)
        sys.exit(128 + signalled.args[0])
    finally:
        give_back(CHECKOUT)
