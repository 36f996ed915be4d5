"""What an agent says about its leases, each kind of word in as few requests as can be."""

from __future__ import annotations

from collections.abc import Mapping

from rq.words.nesting import Json
from rq.work.bulk import Bulk
from rq.work.service import Service

PAUSE = (
    0.02  # seconds between requests that hand in ends: nobody waits for their answers
)


class Words:
    """The words of an agent."""

    def __init__(self, service: Service) -> None:
        self.starts: Bulk[str] = Bulk(service.start)
        self.renewals: Bulk[str] = Bulk(service.renew)
        self.finishes: Bulk[Mapping[str, Json]] = Bulk(service.finish, PAUSE)
        self.releases: Bulk[tuple[str, str]] = Bulk(service.release)

    async def stop(self) -> None:
        """Say nothing more."""
        for bulk in (self.starts, self.renewals, self.finishes, self.releases):
            await bulk.stop()
