"""Commands as an operator may see them: cut, and without passwords. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_WORDS = 32
_MOST_BYTES = 128  # of a word
HIDDEN = b"(hidden)"
_SECRET = (b"PASS", b"AUTH", b"KEY")  # in the names of settings


def visible_words(command: Sequence[bytes]) -> list[bytes]:
    """Return the words of a command, as many and as long as one looks at.

    >>> visible_words([b"config", b"Set", b"RequirePass", b"secret"])
    [b'config', b'Set', b'RequirePass', b'(hidden)']
    >>> visible_words([b"HELLO", b"3", b"auth", b"ann", b"secret", b"SETNAME", b"x"])
    [b'HELLO', b'3', b'auth', b'(hidden)', b'(hidden)', b'(hidden)', b'(hidden)']
    """
    words = [_cut(word) for word in command[:_MOST_WORDS]]
    if len(command) > _MOST_WORDS:
        more = len(command) - _MOST_WORDS + 1
        words[-1] = b"... (%d more arguments)" % more
    from_here = _secrets_from(words)
    return words[:from_here] + [HIDDEN] * len(words[from_here:])


def _secrets_from(words: Sequence[bytes]) -> int:
    """Return from which word on nothing may be shown."""
    upper = [word.upper() for word in words]
    match upper:
        case [b"AUTH", *_]:
            return 1
        case [b"HELLO", *options] if b"AUTH" in options:
            return upper.index(b"AUTH") + 1
        case [b"CONFIG", b"SET", *pairs]:
            secret = (
                at
                for at, name in enumerate(pairs, 3)
                if any(s in name for s in _SECRET)
            )
            return next(secret, len(words))
    return len(words)


def _cut(word: bytes) -> bytes:
    if len(word) <= _MOST_BYTES:
        return word
    return word[:_MOST_BYTES] + b"... (%d more bytes)" % (len(word) - _MOST_BYTES)
