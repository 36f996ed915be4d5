"""The client of JavaScript in a browser: its page asks RQ through the app's own server."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import threading

import pytest
from harness import chromium
from harness.checkout import CHECKOUT
from harness.sandboxes import standing

PAGE = b"""<!doctype html><title>shop</title><p id="said"></p><script type="module">
import { Client, verifyWebhook } from "/rq_client.js";
const said = [];
const rq = new Client({ url: "/rq" });
const { msg_id } = await rq.send("greet", { param1: "Ann" }, { key: "once" });
const onProgress = ({ status }) => said.push(status);
said.push((await rq.wait("greet", msg_id, { onProgress })).state);
await rq.send("gone").catch(({ kind }) => said.push(kind));
await verifyWebhook("whsec_AAAA", {}, "{}").catch(({ kind }) => said.push(kind));
document.getElementById("said").textContent = said.join();
</script>"""
SCRIPT = "#!/bin/sh\necho run looking >&3; sleep 1.5; echo done >&3\n"


class App(http.server.BaseHTTPRequestHandler):
    """Serves a page, and passes what is below /rq on to RQ with the token that it holds."""

    env: dict[str, str]

    def do_GET(self):
        if self.path.startswith("/rq/"):
            return self.pass_on(None)
        is_client = self.path == "/rq_client.js"
        body = (CHECKOUT / "rq/share/rq_client.js").read_bytes() if is_client else PAGE
        kind = "text/javascript" if is_client else "text/html"
        return self.answer(200 if is_client or self.path == "/" else 404, kind, body)

    def do_POST(self):
        self.pass_on(self.rfile.read(int(self.headers["Content-Length"])))

    def pass_on(self, body):
        names = ("Content-Type", "Idempotency-Key", "If-Match")
        headers = {name: self.headers[name] for name in names if name in self.headers}
        headers["Authorization"] = f"Bearer {self.env['RQ_TOKEN']}"
        place = self.env["RQ_URL"].removeprefix("http://")
        with contextlib.closing(http.client.HTTPConnection(place, timeout=60)) as line:
            line.request(self.command, self.path.removeprefix("/rq"), body, headers)
            reply = line.getresponse()
            self.answer(reply.status, reply.headers["Content-Type"], reply.read())

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def url(tmp_path):
    script = tmp_path / "greet.sh"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    with standing("--queue", f"greet={script}") as env:
        App.env = env
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), App)
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            server.server_close()


def test_a_page_sends_and_shows_how_far_it_is(url):
    chromium.need()
    with chromium.browser() as driver:
        driver.get(url)
        shown = "done,no_such_queue,bad_signature"
        chromium.shows(driver, f"run - looking,{shown}", "#said")
