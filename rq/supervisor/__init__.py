"""The supervisor, `rq-mgr`: starts and minds the processes of one root."""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Run the supervisor; return its exit status."""
    # Late, because the fork server lives in this package and needs nothing of it.
    from rq.supervisor import program

    return program.main(argv)
