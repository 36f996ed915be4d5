"""Write requirements.lock from pyproject.toml; `--check` only says whether it is good.

    .venv/bin/python bin/lock.py             keep the versions that still fit
    .venv/bin/python bin/lock.py --upgrade   take the newest
    .venv/bin/python bin/lock.py --check     compare, write nothing

For every CPython from 3.11 on and every platform that has wheels. The resolver, uv, is
fetched into a directory that is removed again.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "bin"))

import pins  # noqa: E402 - it lies beside this file

LOCK = CHECKOUT / pins.NAME
PYPROJECT = CHECKOUT / "pyproject.toml"
HEAD = """\
# The packages that RQ installs, with their hashes. Written by bin/lock.py: do not edit.
# What pyproject.toml asked for then:
"""


def main(words: list[str]) -> int:
    if not set(words) <= {"--check", "--upgrade"}:
        print(__doc__, file=sys.stderr)
        return 2
    new = new_lock("--upgrade" in words)
    if "--check" not in words:
        LOCK.write_text(new)
        return 0
    if new == LOCK.read_text():
        return 0
    print(f"{LOCK} is not what pyproject.toml gives: run bin/lock.py", file=sys.stderr)
    return 1


def new_lock(upgrade: bool) -> str:
    """Return the lock that pyproject.toml gives, near to the one there is."""
    wanted = pins.groups(PYPROJECT)
    with tempfile.TemporaryDirectory(prefix="rq-lock-") as place:
        uv = fetched(Path(place))
        everything = Path(place, "all.txt")
        if LOCK.exists() and not upgrade:
            everything.write_text(LOCK.read_text())
        every = sorted({name for names in wanted.values() for name in names})
        resolve(uv, every, everything, "--generate-hashes")
        owners = {
            group: set(resolved(uv, requirements, everything))
            for group, requirements in wanted.items()
        }
        return text(wanted, owners, blocks(everything.read_text()))


def fetched(place: Path) -> Path:
    """Install the resolver; return its program."""
    venv.create(place / "uv", with_pip=True)
    pip = [place / "uv/bin/python", "-I", "-m", "pip", "install", "--quiet", "uv"]
    subprocess.run(pip, check=True)
    return place / "uv/bin/uv"


def resolve(uv: Path, requirements: list[str], out: Path, *options: str) -> None:
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version=3.11"]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", *options]
    subprocess.run(
        [*command, "-", "--output-file", out],
        input="\n".join(requirements),
        text=True,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def resolved(uv: Path, requirements: list[str], all_of_them: Path) -> list[str]:
    """Return the packages that some requirements need, as `name==version`."""
    out = all_of_them.with_name("some.txt")
    out.unlink(missing_ok=True)
    resolve(uv, requirements, out, "--constraint", str(all_of_them))
    return [named(line) for line in out.read_text().splitlines()]


def named(block: str) -> str:
    return block.split()[0]


def blocks(text: str) -> list[str]:
    """Return the packages of a file of requirements, each with its hashes."""
    return [
        block.rstrip(" \\\n") for block in text.replace("\n    ", "\0").splitlines()
    ]


def text(
    wanted: dict[str, list[str]], owners: dict[str, set[str]], packages: list[str]
) -> str:
    lines = [HEAD.rstrip()]
    lines += [f"# {group}: {' | '.join(names)}" for group, names in wanted.items()]
    for package in packages:
        whose = [group for group, names in owners.items() if named(package) in names]
        lines += [f"# for: {', '.join(whose)}", package.replace("\0", "\n    ")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
