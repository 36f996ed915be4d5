"""The layout of a root, beside what git is told to leave alone in a checkout."""

from pathlib import Path

from harness.checkout import CHECKOUT

from rq.layout import Root


def test_git_leaves_alone_what_a_root_in_the_checkout_keeps():
    root = Root(Path("/root"))
    named = [getattr(root, name) for name, of in vars(Root).items() if is_property(of)]
    kept = {path.relative_to(root.path).parts[0] for path in named if is_below(path)}
    assert {"queue", "index", "config"} <= kept
    lines = (CHECKOUT / ".gitignore").read_text().splitlines()
    left_alone = {line.strip("/*") for line in lines if line.startswith("/")}
    assert kept - left_alone == set()


def is_property(value):
    return isinstance(value, property)


def is_below(path):
    return isinstance(path, Path) and path.is_relative_to("/root") and path.parts[2:]
