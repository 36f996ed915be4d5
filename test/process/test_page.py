"""The body of an answer, read piece by piece, and past its end."""

import http.server
import threading

import pytest

from rq.outbound import page
from rq.outbound.addresses import allowed
from rq.outbound.page import Rules

pytestmark = pytest.mark.process
BODY = b"line\n" * 20_000


class Site(http.server.BaseHTTPRequestHandler):
    """Answers in the version of HTTP, and with or without a length, that a path names."""

    def do_GET(self):
        self.protocol_version, told = self.path[1:].split("+")
        self.send_response(200)
        if told == "length":
            self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def port():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("told", ["HTTP/1.1+length", "HTTP/1.0+length", "HTTP/1.0+end"])
def test_who_reads_on_at_the_end_of_an_answer_gets_nothing(port, told):
    rules = Rules(allow=allowed(["127.0.0.1"]), mend=str, timeout=20.0)
    answer = page.ask("GET", f"http://127.0.0.1:{port}/{told}", rules)
    pieces = []
    while piece := answer.read(7001):
        pieces.append(piece)
    assert b"".join(pieces) == BODY
    assert answer.read(7001) == b""
    answer.close()
