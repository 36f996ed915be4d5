"""Clients of one peer, run by that peer's own Python: `inside MODULE VERB ADDRESS …`.

Standard library only. MODULE lies beside this file and says how the peer is used, as its
documentation does: `connect`, `done`, `fill`, `waiting`, `settle`. One line of JSON comes
out.
"""

import importlib
import json
import multiprocessing
import os
import sys
import threading
import time

PROCESSES = 4


def main():
    name, verb, address, *numbers = sys.argv[1:]
    peer = importlib.import_module(name)
    result = VERBS[verb](peer, address, *map(float, numbers))
    sys.stdout.write(json.dumps(result) + "\n")


def accept(peer, address, clients, total, seconds):
    """Send over `clients` connections, one outstanding each, until `total` or time."""
    begun, took = crowd(peer, address, int(clients), int(total), seconds)
    return figures(len(took), time.perf_counter() - begun, took)


def sustained(peer, address, clients, seconds):
    """As `accept`, and what was put off behind the answers counts, too."""
    begun, took = crowd(peer, address, int(clients), 10**9, seconds)
    peer.settle(address)
    return figures(len(took), time.perf_counter() - begun, took)


def cycle(peer, address, clients, total, seconds):
    """Send, and wait until all that was accepted has ended."""
    warm(peer, address)
    before = peer.done(address)
    begun, took = crowd(peer, address, int(clients), int(total), seconds)
    while (ended := peer.done(address) - before) < len(took):
        if time.perf_counter() - begun > seconds:
            break
        time.sleep(0.01)
    return figures(ended, time.perf_counter() - begun, [])


def warm(peer, address):
    """Wait until the workers work."""
    before = peer.done(address)
    peer.connect(address)("")
    while peer.done(address) == before:
        time.sleep(0.01)


def starts(peer, address, number, seconds):
    """Measure from the request to the handler's first instruction, one at a time."""
    warm(peer, address)
    send, took, until = peer.connect(address), [], time.monotonic() + seconds
    for index in range(int(number)):
        if time.monotonic() > until:
            break
        stamp = f"{os.getcwd()}/stamp{index}"
        asked = time.time()
        send(stamp)
        took.append(stamped(stamp) - asked)
        time.sleep(0.02)
    return figures(len(took), 1.0, took)


def stamped(path):
    while True:
        if os.path.exists(path):
            with open(path) as file:
                text = file.read()
            if text.endswith("\n"):
                return float(text)
        time.sleep(0.001)


def fill(peer, address, total):
    peer.fill(address, int(total))
    peer.settle(address)
    return waiting(peer, address)


def waiting(peer, address):
    return peer.waiting(address)


def figures(number, seconds, took):
    took.sort()
    middle, late = (
        (took[int(len(took) * share)] for share in (0.5, 0.99)) if took else (0, 0)
    )
    return {"rate": number / seconds, "p50": middle, "p99": late, "number": number}


# ---- many clients: threads in a few processes


def crowd(peer, address, clients, total, seconds):
    """Return when the first request left and the seconds each answer took."""
    processes = min(PROCESSES, clients)
    fork = multiprocessing.get_context("fork")
    ready, go = fork.Semaphore(0), fork.Event()
    queue = fork.SimpleQueue()
    share = [clients // processes, total // processes]
    arguments = (peer, address, *share, seconds, ready, go, queue)
    children = [fork.Process(target=threads, args=arguments) for _ in range(processes)]
    for child in children:
        child.start()
    for _ in range(clients // processes * processes):
        ready.acquire()
    begun = time.perf_counter()
    go.set()
    took = [one for _ in children for one in queue.get()]
    for child in children:
        child.join()
    return begun, took


def threads(peer, address, clients, total, seconds, ready, go, queue):
    left, took = iter(range(total)), []

    def work():
        send = peer.connect(address)
        ready.release()
        go.wait()
        until = time.perf_counter() + seconds
        while next(left, None) is not None:
            asked = time.perf_counter()
            send("")
            now = time.perf_counter()
            took.append(now - asked)
            if now > until:
                return

    every = [threading.Thread(target=work) for _ in range(clients)]
    for one in every:
        one.start()
    for one in every:
        one.join()
    queue.put(took)


VERBS = {
    "accept": accept,
    "sustained": sustained,
    "cycle": cycle,
    "starts": starts,
    "fill": fill,
    "waiting": waiting,
}

if __name__ == "__main__":
    main()
