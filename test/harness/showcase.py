"""A root that looks as an operator's does: queues at work, in trouble, paused, down."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import rq
from harness.ancestor_http import old_receiver
from harness.checkout import CHECKOUT
from harness.supervisor import Daemon
from harness.waiting import wait_until
from rq.outbound import permits

THUMBS = r"""#!/bin/sh
printf '\033[1mmaking thumbnails of \033[36m%s\033[0m\n' "$RQ_PARAM1"
for size in 64 128 256 512 1024; do
    printf '  \033[32m✓\033[0m %s px  \033[2m%s.%s.jpg\033[0m\n' $size "$RQ_PARAM1" $size
done
printf '\033[33mwarning:\033[0m no colour profile, sRGB assumed\n'
echo "done 5 sizes made" >&3
"""
ENCODE = r"""#!/bin/sh
printf '\033[1mencoding \033[36m%s\033[0m with 2 threads\n' "$RQ_PARAM1"
printf '\033[2mStream #0: Video: h264 (High), yuv420p, 1920x1080, 25 fps\033[0m\n'
printf '\033[2mStream #1: Audio: aac (LC), 48000 Hz, stereo\033[0m\n'
n=0
while [ $n -lt ${RQ_PARAM2:-2400} ]; do
    n=$((n + 1))
    if [ $((n % 10)) -eq 0 ]; then
        printf '\r\033[K\033[32mkeyframe\033[0m %5d  q=%d.0  size=%6dkB  \033[2mbitrate=%d.%dkbits/s\033[0m\n' \
            $((n * 25)) $((20 + n % 7)) $((n * 96)) $((1200 + n % 90)) $((n % 10))
    fi
    [ $((n % 70)) -eq 0 ] && printf '\r\033[K\033[33mwarning:\033[0m frame %d is late by %d ms\n' $n $((n % 13))
    [ $((n % 110)) -eq 0 ] && printf '\r\033[K\033[1;35mscene\033[0m cut at \033[4m%02d:%02d\033[0m\n' $((n / 60)) $((n % 60))
    printf '\rframe %5d  \033[7m%3d %%\033[0m' $n $((n * 100 / ${RQ_PARAM2:-2400}))
    echo "run frame $n of ${RQ_PARAM2:-2400}" >&3
    sleep 0.1
done
echo
echo done >&3
"""
REPORT = r"""#!/bin/sh
echo "collecting $RQ_PARAM1"
case $RQ_PARAM1 in
march*)
    printf '\033[31mTraceback (most recent call last):\033[0m\n'
    echo '  File "report.py", line 41, in <module>'
    echo '    total = sum(row["amount"] for row in rows)'
    printf '\033[1;31mKeyError: "amount"\033[0m\n'
    exit 1 ;;
april*)
    echo "err the ledger of $RQ_PARAM1 is not closed yet" >&3 ;;
may*) kill -9 $$ ;;
*) echo "done $RQ_PARAM1: 1,204 rows" >&3 ;;
esac
"""
MAIL = "#!/bin/sh\necho 'done delivered' >&3\n"
FLAKY = """#!/bin/sh
[ "$RQ_COUNT" -lt 2 ] && echo 'resend 900-the remote side is busy' >&3 && exit 0
echo done >&3
"""
SCRIPTS = {
    "thumbnails": (THUMBS, 4),
    "video-encode": (ENCODE, 2),
    "reports": (REPORT, 1),
    "newsletter": (MAIL, 2),
    "partner-sync": (FLAKY, 1),
    "invoices": (MAIL, 1),
}
FORM = {
    "default": "hidden",
    "mesg_param1": {"label": "Film", "help": "Path of the film to encode."},
    "mesg_param2": {"label": "Frames", "help": "How many frames; all when empty."},
}


def configure(daemon: Daemon, port: int, **settings: Any) -> None:
    """Write the config of a root, before its supervisor starts."""
    known = {
        "env": "development",
        "host": "127.0.0.1",
        "port": port,
        "addr": "127.0.0.1",
        "grace": 1,
        "allow_new_queue": True,
    }
    daemon.root.config.write_text(json.dumps({**known, **settings}))


def build(daemon: Daemon, port: int, **settings: Any) -> None:
    """Write config and definitions of a root, before its supervisor starts."""
    configure(daemon, port, **settings)
    for name, (text, workers) in SCRIPTS.items():
        directory = daemon.define(name, {"num_workers": workers, "nice": 0})
        (directory / "run").write_text(text)
        if name == "video-encode":
            (directory / "form.json").write_text(json.dumps(FORM))
        daemon.link(name, directory)
    elsewhere = daemon.define("render", {"pull": {"seconds": 600}})
    (elsewhere / "run").unlink()
    daemon.link("render", elsewhere)
    daemon.link("relay", CHECKOUT / "rq/bundled/relay")
    broken = daemon.define("archive", {"num_workers": 1})
    (broken / "run").write_text("#!/no/such/interpreter\n")
    daemon.link("archive", broken)
    timer(daemon, "hourly-report", "reports", 3600)
    timer(daemon, "nightly-archive", "archive", 86400)
    timer(daemon, "newsletter", "newsletter", 7 * 86400)


def hurry(daemon: Daemon, step: float) -> None:
    """Let each of the sixty minutes that owners count last `step` seconds only."""
    directory = daemon.root.path / "hurried"
    directory.mkdir()
    code = f"import rq.queues.owner.rates as rates\nrates.STEP = {step}\n"
    (directory / "sitecustomize.py").write_text(code)
    daemon.env["PYTHONPATH"] = str(directory)


def waves(daemon: Daemon, seconds: float) -> None:
    """Send more and less, so that the pictures show an hour as it might be."""
    until = time.monotonic() + seconds
    number = 0
    while (left := until - time.monotonic()) > 0:
        number += 1
        for _ in range(1 + round(4 * (1 + math.sin(left / 4)) + number % 3)):
            send(daemon, "thumbnails", f"photos/2026/IMG_{4200 + number}.raw")
        if number % 5 == 0:
            send(daemon, "reports", ("july 2026", "august 2026")[number % 2])
        if number % 60 == 0:
            send(daemon, "reports", "april 2026, once more")
        if number % 7 == 0:
            send(daemon, "newsletter", f"subscriber {number}")
        time.sleep(0.15)


def timer(daemon: Daemon, name: str, dest: str, period: int) -> None:
    message = {"dest": dest, "param1": "from the timer"}
    path = Path(daemon.root.path) / "definitions" / f"{name}.json"
    path.write_text(json.dumps({"period": period, "msg": message}))
    (daemon.root.timers / f"{name}.json").symlink_to(path)


def fill(daemon: Daemon) -> dict[str, str]:
    """Send what makes the pages worth looking at; return ids by what they show."""
    for name in (*SCRIPTS, "archive", "relay", "render"):
        daemon.until_up(name)
    ids: dict[str, str] = {}
    for number in range(42):
        ids["done"] = send(daemon, "thumbnails", f"photos/2026/IMG_{4100 + number}.raw")
    for month in ("january", "february", "march", "april", "may", "june"):
        ids[month] = send(daemon, "reports", f"{month} 2026")
    films = ("harbour-at-dawn.mov", "interview-03.mov", "credits.mov", "trailer.mov")
    for film in films:
        one = send(daemon, "video-encode", f"films/{film}")
        ids.setdefault("running", one)
    ids["resent"] = send(daemon, "partner-sync", "orders 2026-11-20")
    send(daemon, "archive", "photos/2019")
    ids["later"] = send(daemon, "invoices", "invoice 88012", due=time.time() + 5400)
    send(daemon, "invoices", "invoice 88013", due=time.time() + 9000)
    daemon.ask("pause_queue", "newsletter")
    wait_until(lambda: daemon.ask_queue("newsletter", "status") == ["PAUSE"])
    for number in range(17):
        send(daemon, "newsletter", f"subscriber {number}")
    prepared = daemon.ask_queue("reports", "prep_message", {"dest": "reports"})
    ids["prep"] = prepared[1].rpartition("/")[2]
    work_elsewhere(daemon, ids)
    together(daemon, ids)
    hand_over(daemon, ids)
    ended = ("done", "err")
    for name in ("march", "april", "may", "june"):
        wait_until(lambda name=name: state(daemon, "reports", ids[name]) in ended, 90)
    wait_until(lambda: state(daemon, "thumbnails", ids["done"]) == "done", 90)
    return ids


def work_elsewhere(daemon: Daemon, ids: dict[str, str]) -> None:
    """Send to a queue whose workers are on other machines, and be two of these."""
    for number in range(7):
        send(daemon, "render", f"scene {number + 1:03}")
    for label, done in (("node-1.example", 0.43), ("node-2.example", 0.81)):
        asked = {"count": 2, "label": label, "slots": 2, "version": rq.__version__}
        leases = daemon.ask_queue("render", "lease", asked)[1]["leases"]
        tokens = [lease["token"] for lease in leases]
        daemon.ask_queue("render", "start", {"tokens": tokens})
        said = {"text": f"frame {done * 240:.0f} of 240", "fraction": done}
        daemon.ask_queue("render", "progress", {"token": tokens[0], **said})
        ids["leased"] = leases[0]["msg_id"]


def together(daemon: Daemon, ids: dict[str, str]) -> None:
    """Prepare messages in transactions: one is open, one committed, one aborted."""

    def opened(key: str, months: tuple[str, ...]) -> tuple[str, list[str]]:
        txn = daemon.ask_queue("partner-sync", "open_txn", {"key": key})[1]["txn"]
        asked = {"txn": txn, "messages": [{"param1": one} for one in months]}
        return txn, daemon.ask_queue("partner-sync", "prepare_txn", asked)[1]

    later, _ = opened("refunds of november", ("refunds",))
    daemon.ask_queue("partner-sync", "abort_txn", {"txn": later})
    sent, made = opened("prices of november", ("prices", "prices, once more"))
    asked = {"txn": sent, "ids": made[:1]}
    daemon.ask_queue("partner-sync", "commit_txn", asked)
    ids["txn"], held = opened(
        "orders of november", ("orders 1", "orders 2", "orders 3")
    )
    ids["held"] = held[0]


def hand_over(daemon: Daemon, ids: dict[str, str]) -> None:
    """Send to hosts that do not answer, and to one that has lost what it may have had."""
    permits.allow(daemon.root, ["127.0.0.0/8"])
    for host in ("127.0.1.7", "127.0.1.8"):  # nobody listens there
        dest = f"http://{host}:1/q/archive"
        ids["relayed"] = send(daemon, "relay", "photos/2019", dest=dest)
    hook = ["https://hooks.example/photos"]  # nobody tells it: there is no such queue
    send(daemon, "thumbnails", "photos/2026/IMG_4199.raw", post_run_webhook=hook)

    def tried() -> bool:
        return any(one["why"] for one in daemon.ask_queue("thumbnails", "owed")[1])

    wait_until(tried, 90)
    with old_receiver() as old:
        old.lose.append("commit")
        ids["doubt"] = send(daemon, "relay", "invoice 88011", dest=old.url)
        wait_until(old.delivered, 90)
        old.states.clear()
        wait_until(lambda: state(daemon, "relay", ids["doubt"]) == "err", 90)


def send(daemon: Daemon, queue: str, param1: str, **fields: Any) -> str:
    message = {"dest": queue, "param1": param1, **fields}
    word, full_id = daemon.ask_queue(queue, "create_message", message)
    assert word == "ok", full_id
    return str(full_id.rpartition("/")[2])


def state(daemon: Daemon, queue: str, msg_id: str) -> str:
    return str(daemon.ask_queue(queue, "get_message_state", {"msg_id": msg_id})[1])
