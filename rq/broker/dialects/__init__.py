"""The commands of the broker: each dialect is a table of names and what they do. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rq.broker.dialects import bananaq, disque_jobs, disque_queues, redisrq
from rq.broker.dialects.call import Command

TABLE: Mapping[bytes, Command] = {
    **disque_jobs.TABLE,
    **disque_queues.TABLE,
    **redisrq.TABLE,
    **bananaq.TABLE,
}
