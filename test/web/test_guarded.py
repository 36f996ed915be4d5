"""What guarded queues were sent holds addresses that admins alone are shown."""

import json

import pytest
from harness.leases import credentials
from harness.web_server import web_alone

from rq.access.roles import Role
from rq.layout import Root

pytestmark = pytest.mark.process

GONE = "20260102.0304.05.006.7"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    path = tmp_path_factory.mktemp("guarded")
    with web_alone(path) as found:
        found.asks = {Role.OPERATOR: credentials(Root(path), "operator", Role.OPERATOR)}
        yield found


@pytest.mark.parametrize("queue", ["notice", "webhook"])
def test_an_operator_moves_no_hidden_address_to_where_it_is_read(web, queue):
    bulk = {"action": "move", "to": "mail", "filter": {"state": "err"}}
    as_json = {"Content_Type": "application/json"}
    api = f"/api/v1/queues/{queue}"

    def moves(**asks):
        form = {"_method": "move", "to": "mail"}
        fields = {"action": "move", "to": "mail", "state": "err"}
        move = json.dumps({"to": "mail"}).encode()
        path = f"{api}/messages/{GONE}/move"
        yield web.post(f"/q/{queue}/{GONE}", form, **asks)
        yield web.post(f"/q/{queue}/bulk", fields, **asks)
        yield web.ask("POST", path, move, **asks, **as_json)
        yield web.ask(
            "POST", f"{api}/bulk", json.dumps(bulk).encode(), **asks, **as_json
        )

    for answer in moves(**web.asks[Role.OPERATOR]):
        assert (answer.status, "an admin may move" in answer.text) == (403, True), (
            answer
        )
    assert [answer.status for answer in moves() if answer.status == 403] == []
