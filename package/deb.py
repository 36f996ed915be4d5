"""A Debian package for the Debian that builds it: its Python, its architecture.

RQ and the packages it needs, as requirements.lock pins them, lie in a venv of the system's
Python in /usr/lib/rq; Debian has older ones of some. Commands, pages, completion and the
unit are where Debian looks for them.
"""

import gzip
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pins
import staging
import wheel

import rq
from rq.cli.launch import PROGRAMS

PYTHON = Path("/usr/bin/python3")
LIB = Path("usr/lib/rq")
PARTS = staging.CHECKOUT / "package" / "debian"
# Where a wheel's share/ has it, and where Debian looks.
_SHARED: Mapping[str, str] = {
    "bash-completion/completions/rq": "bash-completion/completions/rq",
    "fish/vendor_completions.d/rq.fish": "fish/vendor_completions.d/rq.fish",
    "zsh/site-functions/_rq": "zsh/vendor-completions/_rq",
}
_CONTROL = """\
Package: rq-spool
Version: {version}
Architecture: {architecture}
Maintainer: RQ contributors <root@localhost>
Depends: python3 (>= {python}), python3 (<< {next}), passwd, util-linux
Conflicts: python3-rq
Section: utils
Priority: optional
Installed-Size: {kilobytes}
Description: {about}
 A message that is accepted runs at least once, or ends in err with its story.
 Nothing but directories, no server, no database.
"""
_LAUNCHER = """\
#!/bin/sh
# Made by bin/package. The root is that of the service, unless you name another.
set -eu
if [ -z "${{RQ_ROOT:-}}" ] && [ -r /etc/rq/environment ]; then
    . /etc/rq/environment
fi
export RQ_ROOT="${{RQ_ROOT:-/var/lib/rq}}"
exec /usr/lib/rq/bin/python -I -m {words} "$@"
"""


_ASSERTED = """\
# Without a config there is nothing to run: rq-install writes it.
AssertPathExists=/var/lib/rq/config/config.json
"""


class Unable(SystemExit):
    """It cannot be built here; the text says what is missing."""


def build(place: Path, into: Path) -> list[Path]:
    """Build it into a directory; return it."""
    demand_debian()
    tree = place / "deb"
    (tree / LIB).mkdir(parents=True)
    install_code(place, tree)
    write_launchers(tree)
    spread_shared(tree)
    write_service(tree)
    write_control(tree)
    architecture = output("dpkg", "--print-architecture")
    package = into / f"rq-spool_{rq.__version__}_{architecture}.deb"
    # xz for dpkg of every Debian; whoever builds it, its files are root's.
    dpkg = ["dpkg-deb", "--build", "--root-owner-group", "-Zxz", "-z3"]
    run(*dpkg, tree, package)
    return [package]


def demand_debian() -> None:
    missing = [name for name in ("dpkg", "dpkg-deb") if shutil.which(name) is None]
    if missing or not PYTHON.exists():
        names = ", ".join([*missing, *([] if PYTHON.exists() else [str(PYTHON)])])
        raise Unable(f"package: a .deb is built on Debian, and here is no {names}")


def install_code(place: Path, tree: Path) -> None:
    """Make the venv, and put RQ into it with what it needs."""
    (place / "wheel").mkdir()
    built = wheel.build(place, place / "wheel")
    lib = tree / LIB
    run(PYTHON, "-I", "-m", "venv", "--without-pip", lib)
    wanted = place / "wanted.txt"
    wanted.write_text("\n".join(pins.pins(lock(), {pins.BASE})) + "\n")
    pip = [sys.executable, "-I", "-m", "pip", "--python", lib / "bin" / "python"]
    pip += ["install", "--quiet", "--no-input", "--no-deps", "--no-compile"]
    run(*pip, "--require-hashes", "--requirement", wanted)
    run(*pip, next(path for path in built if path.suffix == ".whl"))
    for path in (lib / "bin").iterdir():
        if not path.name.startswith("python"):
            path.unlink()  # its first line names this place
    (lib / "pyvenv.cfg").write_text(venv_config())
    # Nobody will be able to write it there. By its content: the time of a file is another
    # once it is unpacked.
    by_content = ["--invalidation-mode", "unchecked-hash"]
    where = ["-s", str(tree), "-p", "/"]
    run(lib / "bin/python", "-I", "-m", "compileall", "-q", *by_content, *where, lib)


def lock() -> str:
    return (staging.CHECKOUT / pins.NAME).read_text()


def venv_config() -> str:
    return f"home = {PYTHON.parent}\ninclude-system-site-packages = false\n"


def write_launchers(tree: Path) -> None:
    (tree / "usr/bin").mkdir()
    for name, words in PROGRAMS.items():
        launcher = tree / LIB / "bin" / name
        launcher.write_text(_LAUNCHER.format(words=" ".join(words)))
        launcher.chmod(0o755)
        (tree / "usr/bin" / name).symlink_to(f"../lib/rq/bin/{name}")


def spread_shared(tree: Path) -> None:
    """Move pages and completion to where Debian looks, and add what it demands."""
    share, made = tree / "usr/share", tree / LIB / "share"
    for name, target in _SHARED.items():
        (share / target).parent.mkdir(parents=True, exist_ok=True)
        (made / name).rename(share / target)
    pages = share / "man/man1"
    pages.mkdir(parents=True)
    for page in (made / "man/man1").iterdir():
        pack(page, pages / f"{page.name}.gz")
    shutil.rmtree(made)
    doc = share / "doc/rq-spool"
    doc.mkdir(parents=True)
    pack(staging.CHECKOUT / "CHANGELOG.md", doc / "changelog.gz")
    shutil.copy(staging.CHECKOUT / "LICENSE", doc / "copyright")
    shutil.copy(staging.CHECKOUT / "README.md", doc)
    for name in ("guide", "reference"):
        shutil.copytree(staging.CHECKOUT / "docs" / name, doc / "docs" / name)


def pack(source: Path, target: Path) -> None:
    """Pack a file so that the same content gives the same bytes."""
    target.write_bytes(gzip.compress(source.read_bytes(), mtime=0))


def write_service(tree: Path) -> None:
    """Write the unit, as bin/rq.service has it for a clone, and the root it works in."""
    text = (staging.CHECKOUT / "bin/rq.service").read_text()
    unit = tree / "usr/lib/systemd/system/rq.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(text[text.index("[Unit]") :])
    for old, new in (
        ("file:/opt/rq/README.md", "man:rq(1)"),
        ("/opt/rq/bin/rq-init", "/usr/bin/rq-init"),
        ("ReadOnlyPaths=/opt/rq\n", "ReadOnlyPaths=/usr/lib/rq\n"),
        ("Environment=RQ_ROOT=/var/lib/rq", "EnvironmentFile=/etc/rq/environment"),
        (_ASSERTED, ""),
        # The root may be another one, which only what is executed is told.
        (
            "ExecStart=",
            "ExecCondition=/usr/bin/test -e ${RQ_ROOT}/config/config.json\nExecStart=",
        ),
    ):
        text = unit.read_text()
        assert old in text, f"bin/rq.service does not say {old}"
        unit.write_text(text.replace(old, new))
    config = tree / "etc/rq"
    config.mkdir(parents=True)
    shutil.copy(PARTS / "environment", config / "environment")


def write_control(tree: Path) -> None:
    control = tree / "DEBIAN"
    control.mkdir()
    major, minor = map(int, output(PYTHON, "-I", "-c", _VERSION).split("."))
    text = _CONTROL.format(
        version=rq.__version__,
        architecture=output("dpkg", "--print-architecture"),
        python=f"{major}.{minor}",
        next=f"{major}.{minor + 1}",
        kilobytes=sum(sizes(tree)) // 1024,
        about=str(rq.__doc__).rstrip("."),
    )
    (control / "control").write_text(text)
    (control / "conffiles").write_text("/etc/rq/environment\n")
    for name in ("postinst", "prerm", "postrm"):
        shutil.copy(PARTS / name, control)
        (control / name).chmod(0o755)


_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def sizes(tree: Path) -> Iterator[int]:
    return (path.lstat().st_size for path in tree.rglob("*"))


def output(*words: str | Path) -> str:
    return subprocess.run(
        words, check=True, capture_output=True, text=True
    ).stdout.strip()


def run(*words: str | Path) -> None:
    subprocess.run(words, check=True, stdout=sys.stderr)
