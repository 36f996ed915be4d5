"""Commands about the broker itself and its clients: AUTH to SHUTDOWN, and the HELLO of
Redis. What they answer: docs/reference/broker.md.

TABLE names them all; the process hands it to the server, which hands itself to them.
"""

from __future__ import annotations

from collections.abc import Mapping

from rq.broker.admin import (
    authentication,
    clients,
    cluster,
    commands,
    info,
    lifetime,
    settings,
    views,
    watching,
)
from rq.broker.server import AdminCommand

TABLE: Mapping[bytes, AdminCommand] = {
    b"AUTH": AdminCommand(authentication.auth, -2, before_auth=True),
    b"HELLO": AdminCommand(authentication.hello, -1, before_auth=True),
    b"QUIT": AdminCommand(lifetime.quit_, -1, before_auth=True),
    b"PING": AdminCommand(lifetime.ping, -1),
    b"ECHO": AdminCommand(lifetime.echo, 2),
    b"TIME": AdminCommand(lifetime.clock, 1),
    b"CLIENT": AdminCommand(clients.client, -2),
    b"COMMAND": AdminCommand(commands.command, -1),
    b"MONITOR": AdminCommand(watching.monitor, 1),
    b"SLOWLOG": AdminCommand(watching.slowlog, -2),
    b"LATENCY": AdminCommand(watching.latency, -2),
    b"INFO": AdminCommand(info.info, -1),
    b"CONFIG": AdminCommand(settings.config, -2),
    b"BROKER": AdminCommand(views.broker, -2),
    b"CLUSTER": AdminCommand(cluster.cluster, -2),
    b"DISQUE": AdminCommand(info.disque, -2),
    b"DEBUG": AdminCommand(lifetime.debug, -2),
    b"FLUSHALL": AdminCommand(lifetime.flushall, -1),
    b"FLUSHDB": AdminCommand(lifetime.flushall, -1),
    b"BGREWRITEAOF": AdminCommand(lifetime.rewrite, 1),
    b"LOADJOB": AdminCommand(lifetime.loadjob, 2),
    b"SHUTDOWN": AdminCommand(lifetime.shutdown, -1),
}
