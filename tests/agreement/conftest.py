"""A Redis for trail and ledger of workers that run inside the test."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from remesh.embedded import EmbeddedRedis
from remesh.redisdb import RedisClient, connect
from remesh.settings import Settings


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisClient]:
    """A real server, for one module."""
    server = EmbeddedRedis(tmp_path_factory.mktemp("redis")).start()
    client = connect(Settings(redis_url=SecretStr(server.url)))
    yield client
    client.close()
    server.stop()
