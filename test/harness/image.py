"""Containerfile without an engine: its steps, run in Debian roots.

No engine runs where the tests do, and no registry of images is reached. So each stage is a
copy of a Debian that was made here, and each step is done to it as an engine would do it.
An instruction that is not in the table is an error: none is passed over.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.checkout import CHECKOUT

# What Containerfile installs; then it finds it, and asks the mirror for its lists alone.
PACKAGES = ("python3", "python3-venv", "tini", "ca-certificates")
CERTIFICATES = "/etc/ssl/certs"  # of the machine, whose index of packages has its own
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
IGNORED = CHECKOUT / ".containerignore"

# A step sees a /proc and /dev of its own, and trusts whom the machine trusts.
_STEP = f"""
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
mount --bind {CERTIFICATES} "$1{CERTIFICATES}"
exec chroot "$@"
"""


def debian_root(place: Path) -> Path:
    """Make a smallest Debian of this release; return its directory."""
    root = place / "debian"
    options = ["--variant=minbase", "--dpkgopt=force-unsafe-io", "--quiet"]
    options += [f"--include={','.join(PACKAGES)}"]
    run("mmdebstrap", *options, _release(), root)  # from its usual mirror
    return root


def _release() -> str:
    lines = Path("/etc/os-release").read_text().splitlines()
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    return facts["VERSION_CODENAME"]


def run(*words: str | Path, **options: object) -> str:
    """Run a program that must succeed; return what it printed."""
    usual = {"stdin": subprocess.DEVNULL, "cwd": CHECKOUT, "timeout": 500}
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        **{**usual, **options},
    )
    told = done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0, f"{shlex.join(map(str, words))}: {told}"
    return done.stdout


def within(root: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    """Run a command in a Debian root; return what it printed."""
    known = {"PATH": PATH, **(env or {})}
    pairs = [f"{name}={value}" for name, value in known.items()]
    alone = ["unshare", "--mount", "--pid", "--fork", "sh", "-euc", _STEP, "sh"]
    return run(*alone, root, "env", "-i", *pairs, *words)


@dataclass(slots=True, kw_only=True)
class Image:
    """What an engine would run."""

    files: Path
    env: dict[str, str] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)  # by their instruction


@dataclass(slots=True)
class Builder:
    """The stages of a Containerfile, as far as they are done."""

    place: Path
    base: Path
    stages: dict[str, Image] = field(default_factory=dict)
    at: Image | None = None

    def build(self) -> Image:
        """Do all steps; return the image of the last stage."""
        for instruction, words in steps((CHECKOUT / "Containerfile").read_text()):
            DOES[instruction](self, words)
        return self.image

    @property
    def image(self) -> Image:
        assert self.at is not None, "a step before FROM"
        return self.at

    def begin(self, words: str) -> None:
        name = words.partition(" AS ")[2] or "last"
        assert words.startswith("${BASE}"), words
        files = self.place / name
        run("cp", "-a", self.base, files)
        self.at = self.stages[name] = Image(files=files)

    def do(self, words: str) -> None:
        within(self.image.files, "sh", "-c", words, env=self.image.env)

    def copy(self, words: str) -> None:
        *sources, target = words.split()
        into = self.image.files / target.lstrip("/")
        into.mkdir(parents=True, exist_ok=True)
        if sources[0].startswith("--from="):
            stage = self.stages[sources[0].removeprefix("--from=")]
            run("cp", "-a", f"{stage.files}{sources[1]}/.", into)
        elif sources == ["."]:
            _copy_checkout(into)
        else:
            run("cp", *sources, into)

    def set_env(self, words: str) -> None:
        self.image.env |= dict(word.split("=", 1) for word in shlex.split(words))

    def keep(self, name: str) -> Callable[[str], None]:
        def note(words: str) -> None:
            self.image.facts[name] = json.loads(words) if words[0] == "[" else words

        return note


def _copy_checkout(into: Path) -> None:
    """Copy what an engine would send: all but what is ignored."""
    left_out = []
    for line in IGNORED.read_text().splitlines():
        if line and not line.startswith("#"):
            anywhere = line.startswith("**/")
            left_out += ["--no-anchored" if anywhere else "--anchored"]
            left_out += [f"--exclude={line[3:] if anywhere else f'./{line}'}"]
    with subprocess.Popen(
        ["tar", "--create", *left_out, "."], cwd=CHECKOUT, stdout=subprocess.PIPE
    ) as packed:
        run("tar", "--extract", "--no-same-owner", stdin=packed.stdout, cwd=into)
    assert packed.returncode == 0


def _kept(name: str) -> Callable[[Builder, str], None]:
    return lambda builder, words: builder.keep(name)(words)


DOES: Mapping[str, Callable[[Builder, str], None]] = {
    "ARG": lambda _builder, _words: None,
    "FROM": Builder.begin,
    "RUN": Builder.do,
    "COPY": Builder.copy,
    "ENV": Builder.set_env,
    **{
        name: _kept(name)
        for name in (
            *("ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL"),
            *("USER", "VOLUME", "WORKDIR"),
        )
    },
}


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Give each instruction of a Containerfile, and its words."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for step in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if step.strip():
            instruction, _, words = step.partition(" ")
            yield instruction, words.strip()
