"""The audit trail, counted: what is written to it, and how often it cannot be."""

from collections.abc import Iterable

from remesh.audit import Trail
from remesh.errors import TrailUnavailable
from remesh.meter import Meter
from remesh.models import AuditRecord
from remesh.redisdb import RedisClient


class MeteredTrail(Trail):
    """As `Trail`, and tells a meter."""

    def __init__(self, redis: RedisClient, cluster: str, prefix: str, meter: Meter) -> None:
        super().__init__(redis, cluster, prefix)
        self._meter = meter

    def append(self, record: AuditRecord) -> str:
        """See `Trail`."""
        try:
            position = super().append(record)
        except TrailUnavailable:
            self._meter.append_failed()
            raise
        self._meter.appended(1)
        return position

    def append_many(self, records: Iterable[AuditRecord]) -> list[str]:
        """See `Trail`."""
        try:
            positions = super().append_many(records)
        except TrailUnavailable:
            self._meter.append_failed()
            raise
        self._meter.appended(len(positions))
        return positions
