"""Whether a webhook may be posted where a new message says: known before it is accepted,
where its host is written as an address.

A name says where it leads only when it is looked up, which would hold the owner up, and may
lead elsewhere later: the queue `webhook` judges that at each try. What it would refuse for
certain is refused here, while its sender listens.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from rq import config, names
from rq.errors import BadConfig, BadInput, BadMessage
from rq.layout import Root
from rq.outbound import addresses, peers, permits
from rq.outbound.addresses import Allowed, Internal


class Webhooks:
    """Where webhooks of a root may be posted, as config/webhooks.json says now."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._stamp: config.Stamp | None = None
        self._allowed = Allowed()

    def check(self, urls: tuple[str, ...]) -> None:
        """BadMessage when nothing would be posted to one of some URLs."""
        self._refresh()
        for url in urls:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or peers.USUAL[parts.scheme]
            try:
                addresses.check_written(host, port, self._allowed)
            except Internal as error:
                place = names.host_port(host, port)
                # The host alone: a path may hold a secret, and this goes to logs.
                raise BadMessage(
                    f"post_run_webhook names {place}: {error}, where nothing is posted "
                    f"unless an operator allows it by `rq relay allow --webhooks {place}` "
                    "(the list allow in config/webhooks.json)"
                ) from None

    def _refresh(self) -> None:
        """Read what is allowed again if that has changed. A file that cannot be used is
        told of where webhooks are posted."""
        stamp = config.stamp(self._root.webhooks)
        if stamp == self._stamp:
            return
        try:
            self._allowed = permits.of_webhooks(self._root)
        except (BadConfig, BadInput):
            return
        self._stamp = stamp
