"""Descriptors that a loop looks at are closed without a word to the kernel before."""

from __future__ import annotations

import asyncio
import os

import pytest

from rq.proc import closing, descriptors

pytestmark = pytest.mark.process


@pytest.fixture(params=[closing.Loop, asyncio.new_event_loop])
def loop(request):
    loop = request.param()
    yield loop
    loop.close()


def pipe():
    read, write = os.pipe()
    os.set_blocking(read, False)
    return read, write


def turns(loop, seconds=0.05):
    """Return how often a loop looks at what is ready in some time."""
    selector, count = loop._selector, 0
    select = selector.select

    def counted(timeout=None):
        nonlocal count
        count += 1
        return select(timeout)

    selector.select = counted
    loop.run_until_complete(asyncio.sleep(seconds))
    del selector.select
    return count


def test_a_descriptor_that_was_closed_is_looked_at_no_more(loop):
    heard = []
    read, write = pipe()
    loop.add_reader(read, heard.append, "old")
    os.write(write, b"x")
    closing.close(loop, read)
    assert turns(loop) < 10
    os.close(write)
    again, write = pipe()
    assert again == read
    loop.add_reader(again, heard.append, "new")
    assert turns(loop) < 10
    assert heard == []
    os.write(write, b"x")
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    assert set(heard) == {"new"}
    closing.close(loop, again)
    os.close(write)


def test_a_descriptor_that_stays_open_is_taken_back_from_the_kernel(loop):
    first, other = pipe(), pipe()
    loop.add_reader(first[0], print)
    loop.add_reader(other[0], print)
    closing.close(loop, first[0])
    os.write(other[1], b"x")
    loop.remove_reader(other[0])
    assert turns(loop) < 10  # else it would be ready, and for no callback
    descriptors.close_all((first[1], *other))


def test_descriptors_are_closed_wherever_their_numbers_lie():
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(7)]
    kept = {opened[2], opened[4]}
    descriptors.close_all([fd for fd in reversed(opened) if fd not in kept])
    assert kept == {fd for fd in opened if is_open(fd)}
    descriptors.close_all(kept)
    assert not any(map(is_open, opened))


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
