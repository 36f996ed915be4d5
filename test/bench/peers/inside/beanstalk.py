"""beanstalkd: its protocol over TCP, and a worker that reserves and deletes.

`beanstalk.py ADDRESS [SCRIPT]` is that worker.
"""

import os
import socket
import subprocess
import sys
import time


def dial(address):
    line = socket.create_connection(("127.0.0.1", int(address)))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line, line.makefile("rb")


def connect(address):
    line, answers = dial(address)

    def send(param):
        body = param.encode() or b"x"
        line.sendall(b"put 1024 0 3600 %d\r\n%b\r\n" % (len(body), body))
        expect(answers, b"INSERTED")

    return send


def expect(answers, word):
    answer = answers.readline()
    if not answer.startswith(word):
        raise SystemExit(f"{answer!r} instead of {word!r}")
    return answer.split()


def stats(address):
    line, answers = dial(address)
    with line:
        line.sendall(b"stats-tube default\r\n")
        size = int(expect(answers, b"OK")[1])
        rows = answers.read(size + 2).decode().splitlines()[1:]
    return dict(row.split(": ", 1) for row in rows if ": " in row)


def done(address):
    return int(stats(address)["cmd-delete"])


def waiting(address):
    return int(stats(address)["current-jobs-ready"])


def fill(address, total):
    line, answers = dial(address)
    for at in range(0, total, 200):
        number = min(200, total - at)
        line.sendall(b"put 1024 0 3600 1\r\nx\r\n" * number)
        for _ in range(number):
            expect(answers, b"INSERTED")


def settle(address):
    """What was answered is done."""


def work(address, script):
    line, answers = dial(address)
    while True:
        line.sendall(b"reserve\r\n")
        _, job, size = expect(answers, b"RESERVED")
        body = answers.read(int(size) + 2)[:-2].decode()
        handle(script, "" if body == "x" else body)
        line.sendall(b"delete %b\r\n" % job)
        expect(answers, b"DELETED")


def handle(script, param):
    if script:
        subprocess.run([script], env={**os.environ, "RQ_PARAM1": param}, check=True)
    elif param:
        now = time.time()
        with open(param, "w") as file:
            file.write(f"{now}\n")


if __name__ == "__main__":
    work(sys.argv[1], "".join(sys.argv[2:]))
