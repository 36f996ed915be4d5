"""Measures the house: how much code there is, and how it hangs together.

`.venv/bin/python test/figures.py` prints a table; with the name of a checkout as argument,
that of another one, for instance of the version before.
"""

from __future__ import annotations

import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import grimp

# Modules whose promises are the hardest to keep: each argues them in comments.
HARDEST = (
    *("spool/store", "spool/events", "spool/recovery", "journal/writer"),
    *("queues/loop", "queues/runner/runner", "broker/node", "broker/job_desk"),
    *("broker/cluster/copies", "broker/bus"),
)


def main() -> None:
    here = Path(__file__).resolve().parents[1]
    checkout = Path(sys.argv[1]) if len(sys.argv) > 1 else here
    sys.path.insert(0, str(checkout))
    graph = grimp.build_graph("rq", cache_dir=None)
    code = checkout / "rq"
    for what, figure in (*size(checkout), *shape(code, graph), *essays(code)):
        print(f"{what:<44}{figure}")  # noqa: T201


def size(checkout: Path) -> Iterator[tuple[str, str]]:
    for room in ("rq", "test"):
        files = list((checkout / room).rglob("*.py"))
        yield f"{room}/: files, lines", f"{len(files)}, {sum(map(lines, files))}"
    modules = [*(checkout / "rq").glob("*.py")]
    packages = [*(checkout / "rq").glob("*/__init__.py")]
    names = sorted(path.stem for path in modules if path.stem[:2] != "__")
    yield "modules at the root of rq/", f"{len(names)}: {' '.join(names)}"
    yield "packages at the root of rq/", str(len(packages))


def shape(code: Path, graph: grimp.ImportGraph) -> Iterator[tuple[str, str]]:
    rings = circles(graph)
    yield "circles of imports", f"{len(rings)}"
    for ring in rings:
        yield f"  {len(ring)} modules", " ".join(sorted(ring))
    importers = {
        name: graph.find_modules_that_directly_import(name) for name in graph.modules
    }
    single = {
        name: next(iter(those)) for name, those in importers.items() if len(those) == 1
    }
    beside = [name for name, by in single.items() if parent(name) == parent(by)]
    length = sum(lines(file_of(code, name)) for name in single)
    yield (
        "modules with one importer: all, beside it, lines",
        (f"{len(single)}, {len(beside)}, {length}"),
    )


def circles(graph: grimp.ImportGraph) -> list[frozenset[str]]:
    """Return the sets of modules each of which comes to import itself by way of all
    others of its set."""
    rings = set()
    for name in graph.modules:
        imported = graph.find_upstream_modules(name)
        ring = frozenset({name} | (imported & graph.find_downstream_modules(name)))
        if len(ring) > 1:
            rings.add(ring)
    return sorted(rings, key=len, reverse=True)


def essays(code: Path) -> Iterator[tuple[str, str]]:
    every = list(code.rglob("*.py"))
    comments = sum(map(comment_lines, every))
    share = 100 * comments / sum(map(lines, every))
    yield "lines that are a comment alone", f"{comments}, {share:.1f} %"
    for name in HARDEST:
        if (path := code / f"{name}.py").exists():
            yield f"  {name}: of {lines(path)} lines", str(comment_lines(path))


def comment_lines(path: Path) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return sum(
        token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
        for token in tokens
    )


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def parent(name: str) -> str:
    return name.rpartition(".")[0]


def file_of(code: Path, name: str) -> Path:
    path = code.parent / name.replace(".", "/")
    module = path.with_suffix(".py")
    return module if module.exists() else path / "__init__.py"


if __name__ == "__main__":
    main()
