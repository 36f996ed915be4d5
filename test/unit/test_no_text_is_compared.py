"""Nobody tells one failure from another by its text: that is what kinds are for."""

import ast

import pytest
from harness.checkout import CHECKOUT
from harness.code import MODULES, place, walk

ROOM = CHECKOUT / "rq"
# The ancestor's sentences and statuses, which are a protocol.
PROTOCOL = {"words/sentences.py", "words/wording.py"}
# Texts of others, who tell no kind: orjson, Spark, Arrow. And one that is said once.
FOREIGN = {
    "words/nesting.py:check_depth",
    "spark/attachments.py:unreadable",
    "spark/failures.py:first_line",
    "spark/failures.py:of_round",
    "spark/remote.py:is_passing",
    "queues/owner/settings.py:read_again",
}
ERRORS = {"Exception", "BaseException", "OSError", "RQError"}
LOOKS = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "partition"),
    *("rpartition", "find", "index", "count"),
    *("match", "fullmatch", "search", "findall", "finditer"),
}


def constants(tree):
    """Return what the names at the top of a module stand for."""
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def errors_in(function, nodes):
    """Return the names in a function, and among its nodes, that hold errors."""
    caught = {
        node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name
    }
    given = {
        arg.arg
        for arg in (*function.args.args, *function.args.kwonlyargs)
        if arg.annotation and not ERRORS.isdisjoint(united(arg.annotation))
    }
    return caught | given


def united(annotation):
    """Return the names of which an annotation is the union."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return united(left) | united(right)
        case ast.Name(id=name):
            return {name}
    return set()


def sides(node):
    """Return what a node compares or searches, if it does."""
    match node:
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
            return [value, *args] if attr in LOOKS else []
    return []


def is_text_of(part, errors):
    """Return whether it is the text of one of these errors, `str(error)` or its args."""
    match part:
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
            return name in errors
        case ast.Attribute(value=ast.Name(id=name), attr="args"):
            return name in errors
    return False


def is_sentence(part, known):
    """Return whether it is a constant of several words (no `charset=`), or a tuple with
    one."""
    if isinstance(part, ast.Name):
        part = known.get(part.id, part)
    if isinstance(part, ast.Tuple | ast.Set | ast.List):
        return any(is_sentence(each, known) for each in part.elts)
    value = part.value if isinstance(part, ast.Constant) else None
    words = value.decode("latin-1") if isinstance(value, bytes) else value
    return isinstance(words, str) and " " in words.strip() and "=" not in words


def compared(code):
    """Give the functions of a module that compare texts of failures, and where."""
    tree = ast.parse(code)
    known = constants(tree)
    for function in walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        nodes = list(walk(function))
        errors = errors_in(function, nodes)
        for node in nodes:
            if not isinstance(node, (ast.Compare, ast.Call)):
                continue
            for part in sides(node):
                if is_text_of(part, errors) or is_sentence(part, known):
                    yield function.name, node.lineno


def test_no_failure_is_known_by_its_text():
    found = [
        f"{place(path, line)} in {name}"
        for path in MODULES
        if str(path.relative_to(ROOM)) not in PROTOCOL
        for name, line in compared(path.read_text())
        if f"{path.relative_to(ROOM)}:{name}" not in FOREIGN
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'return "DOWN" in str(error)',
        'return str(error) == "x"',
        'return str(error).startswith("x")',
        "return re.match(PATTERN, str(error))",
        'return error.args[0] == "x" or error.args == ()',
        'return reply == ["fail", "status: DOWN"]',
        'return reply[1] == "already created"',
        'return text.startswith(("status: ", "not accepted: "))',
        "return text.startswith(_NOT_NOW)",
        """return reply == b'["fail", "status: DOWN"]'""",
        'return text.partition(" may ask of ")',
    ],
)
def test_it_would_be_seen(line):
    code = f'_NOT_NOW = ("not done, ",)\ndef look(error: RQError):\n    {line}\n'
    assert [name for name, _ in compared(code)][:1] == ["look"]


@pytest.mark.parametrize(
    "line",
    ["return error.kind in PASSING", 'return " " in text', 'return verb == "send"'],
)
def test_what_compares_no_sentence_is_not_seen(line):
    assert list(compared(f"def look(error: RQError):\n    {line}\n")) == []
