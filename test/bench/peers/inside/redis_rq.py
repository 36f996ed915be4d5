"""python-rq: `Queue.enqueue` of a function that a worker imports by name."""

import time

import redis
from rq.registry import FinishedJobRegistry

from rq import Queue


def nothing(param):
    if param:
        stamp(param)


def stamp(path):
    now = time.time()
    with open(path, "w") as file:
        file.write(f"{now}\n")


def queue(address):
    return Queue(connection=redis.Redis(port=int(address)))


def connect(address):
    to = queue(address)
    return lambda param: to.enqueue(nothing, param)


def done(address):
    return FinishedJobRegistry(queue=queue(address)).get_job_count(cleanup=False)


def waiting(address):
    return queue(address).count


def fill(address, total):
    to = queue(address)
    for at in range(0, total, 500):
        number = min(500, total - at)
        to.enqueue_many([Queue.prepare_data(nothing, ("",)) for _ in range(number)])


def settle(address):
    """What was answered is done."""
