"""Make docs/screenshots: every screen, light and dark, wide and narrow.

.venv/bin/python test/browser/screenshots.py [DIRECTORY]
"""

from __future__ import annotations

import base64
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from harness import chromium, delta_showcase, history_showcase, showcase
from harness.checkout import CHECKOUT
from harness.ports import free_port
from harness.supervisor import daemon_on

SHAPES = {"wide": chromium.WIDE, "narrow": chromium.NARROW}
THEMES = ("light", "dark")
TALLEST = 2400
HOUR = 60.0  # seconds that the hour of the pictures lasts


def screens(ids: dict[str, str]) -> dict[str, str]:
    """Return the screens' names and paths."""
    running = f"/q/video-encode/{ids['running']}"
    return {
        "overview": "/",
        "queue": "/q/reports",
        "queue-running": "/q/video-encode",
        "queue-elsewhere": "/q/render",
        "queue-paused": "/q/newsletter?state=que",
        "message-failed": f"/q/reports/{ids['march']}",
        "message-running": running,
        "message-elsewhere": f"/q/render/{ids['leased']}",
        "message-waiting": f"/q/invoices/{ids['later']}",
        "message-prepared": f"/q/reports/{ids['prep']}",
        "message-done": f"/q/thumbnails/{ids['done']}",
        "log": f"{running}/log",
        "confirm": f"{running}/confirm/cancel",
        "queue-failed": "/q/reports?state=err",
        "many-messages": "/q/reports/bulk?state=err&action=retry",
        "runs": "/runs?since=2d&queue=reports",
        "failures": "/failures",
        "search": "/search?words=april",
        "relay": "/relay",
        "transactions": "/q/partner-sync/txn",
        "transaction": f"/q/partner-sync/txn/{ids['txn']}",
        "history": "/history",
        "history-month": "/history?range=month",
        "history-queue": "/q/thumbnails/history",
        "tables": "/tables",
        "table": "/tables/reports/hits",
        "timers": "/timers",
        "system": "/system",
        "new-message": "/q/video-encode/new_message",
        "new-queue": "/new_queue",
        "not-found": "/q/nowhere",
    }


def main() -> int:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKOUT / "docs/screenshots"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rq-shots-") as scratch:
        shoot(Path(scratch), target)
        shoot_empty(Path(scratch) / "empty", target)
    return 0


def shoot(scratch: Path, target: Path) -> None:
    port = free_port()
    with daemon_on(scratch / "rq") as daemon, chromium.browser() as driver:
        showcase.build(daemon, port)
        showcase.hurry(daemon, HOUR / 60)
        daemon.start()
        ids = showcase.fill(daemon)
        history_showcase.publish_weeks(daemon.root)
        delta_showcase.write_week(daemon.root, [ids["march"], ids["done"]])
        daemon.until_up("web")
        showcase.waves(daemon, HOUR * 0.8)
        for name, path in screens(ids).items():
            take(driver, f"http://127.0.0.1:{port}{path}", target / name)
            sys.stdout.write(f"{name}\n")
        dialog(driver, f"http://127.0.0.1:{port}/q/video-encode/{ids['running']}")
        save(driver, target / "dialog-light-wide", 900)


def shoot_empty(scratch: Path, target: Path) -> None:
    port = free_port()
    with daemon_on(scratch / "rq") as daemon, chromium.browser() as driver:
        showcase.configure(daemon, port)
        daemon.start()
        daemon.until_up("web")
        take(driver, f"http://127.0.0.1:{port}/", target / "overview-empty")
        for name in ("relay", "history", "timers"):
            url = f"http://127.0.0.1:{port}/{name}"
            take(driver, url, target / f"{name}-empty")


def take(driver: Any, url: str, target: Path) -> None:
    for theme in THEMES:
        chromium.theme(driver, theme)
        for shape, width in SHAPES.items():
            chromium.size(driver, width, 844)
            driver.get(url)
            time.sleep(0.8)
            tall = driver.execute_script("return document.body.scrollHeight")
            fixed = "logbody" in driver.find_element("tag name", "body").get_attribute(
                "class"
            )
            height = 844 if fixed else max(600, min(tall, TALLEST))
            save(driver, target.with_name(f"{target.name}-{theme}-{shape}"), height)


def dialog(driver: Any, url: str) -> None:
    chromium.theme(driver, "light")
    chromium.size(driver, chromium.WIDE)
    driver.get(url)
    chromium.until(driver, "!document.getElementById('theme').hidden")
    driver.find_element("css selector", "[data-key=c]").click()
    chromium.until(driver, "document.querySelector('dialog[open]')")


def save(driver: Any, path: Path, height: int) -> None:
    width = driver.execute_script("return innerWidth")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    kind = "png" if "png" in sys.argv else "webp"
    quality = {} if kind == "png" else {"quality": 82}
    shot = {"format": kind, "clip": clip, "captureBeyondViewport": True, **quality}
    told = driver.execute_cdp_cmd("Page.captureScreenshot", shot)
    path.with_name(f"{path.name}.{kind}").write_bytes(base64.b64decode(told["data"]))


if __name__ == "__main__":
    sys.exit(main())
