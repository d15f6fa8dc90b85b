"""A server that is away, unsafe or unwilling is one clear line without a secret."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import fakeredis
import pytest
import redis as redis_py

from remesh.embedded import EmbeddedRedis, find_server
from remesh.errors import BrokerError, BrokerUnreachable, BrokerUnsafe, ConfigError, TrailUnavailable
from remesh.redisdb import (
    BrokerReport,
    RedisClient,
    check_broker,
    connect,
    connect_url,
    place,
    place_of,
    problem,
    report_of,
    require_safe,
    trail_translated,
    translated,
)
from tests.redis.conftest import settings_for, until

SAFE_INFO: dict[str, Any] = {
    "redis_version": "7.0.15",
    "role": "master",
    "loading": 0,
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "maxmemory_policy": "noeviction",
    "used_memory": 1000,
    "maxmemory": 0,
}


READER = "user reader on >letmein ~* +get +ping +hello +client +select\n"


def report(**more: object) -> BrokerReport:
    return report_of(SAFE_INFO | more, "Redis at host:6379")


@pytest.fixture
def guarded(folder: Path) -> Iterator[int]:
    """A server on loopback TCP with a password and a user of few rights; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    config = folder / "server.conf"
    config.write_text(f"port {port}\nbind 127.0.0.1\ndir {folder}\nrequirepass hunter2\n" + READER)
    server = Popen([find_server(), str(config)], stdout=DEVNULL)
    try:
        with connect_url(f"redis://:hunter2@127.0.0.1:{port}") as client:
            until(lambda: _answers(client))
        yield port
    finally:
        server.kill()
        server.wait()


def _answers(client: RedisClient) -> bool:
    try:
        return bool(client.ping())
    except redis_py.ConnectionError:
        return False


def refusal(client: RedisClient, call: Callable[[RedisClient], object], kind: type[BrokerError] = BrokerError) -> str:
    with client, pytest.raises(BrokerError) as caught, translated(client, "cannot do it"):
        call(client)
    assert type(caught.value) is kind
    assert caught.value.__cause__ is not None
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "letmein" not in str(caught.value)
    return str(caught.value)


def test_an_embedded_server_is_safe(server: EmbeddedRedis, real: RedisClient) -> None:
    found = check_broker(real)
    assert (found.aof, found.aof_writable, found.policy) == (True, True, "noeviction")
    assert found.version
    assert abs(found.clock_skew) < 5
    assert require_safe(found) == ()
    assert found.warnings == ()
    assert found.place == f"Redis at {server.url.removeprefix('unix://')}"


def test_a_server_without_aof_is_refused_naming_setting_cure_and_override(real: RedisClient) -> None:
    real.config_set("appendonly", "no")
    try:
        found = check_broker(real)
    finally:
        real.config_set("appendonly", "yes")
    with pytest.raises(BrokerUnsafe) as caught:
        require_safe(found)
    for words in ("appendonly is no", "set `appendonly yes`", "REMESH_ALLOW_UNSAFE_BROKER=true"):
        assert words in str(caught.value)
    assert len(require_safe(found, allow_unsafe=True)) == 1


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_keys_is_refused(real: RedisClient, policy: str) -> None:
    real.config_set("maxmemory-policy", policy)
    try:
        found = check_broker(real)
    finally:
        real.config_set("maxmemory-policy", "noeviction")
    with pytest.raises(BrokerUnsafe, match=f"maxmemory-policy is {policy}.*set `maxmemory-policy noeviction`"):
        require_safe(found)


def test_a_server_whose_disk_fails_is_refused() -> None:
    with pytest.raises(BrokerUnsafe, match="append-only file failed"):
        require_safe(report(aof_last_write_status="err"))


def test_all_that_is_unsafe_is_named_at_once() -> None:
    found = report(aof_enabled=0, maxmemory_policy="allkeys-lru")
    assert len(found.problems) == 2
    with pytest.raises(BrokerUnsafe, match=r"appendonly.*; maxmemory-policy"):
        require_safe(found)


def test_an_almost_full_server_and_a_wrong_clock_are_warnings() -> None:
    assert "95% of maxmemory" in report(used_memory=95, maxmemory=100).warnings[0]
    skewed = report_of(SAFE_INFO, "Redis", clock_skew=-61.4)
    assert "-61 s" in skewed.warnings[0]
    assert require_safe(skewed) == ()


@pytest.mark.parametrize(("fact", "words"), [({"loading": 1}, "still loading"), ({"role": "slave"}, "replica")])
def test_a_server_that_cannot_be_written_to_now_is_unreachable(fact: dict[str, object], words: str) -> None:
    with pytest.raises(BrokerUnreachable, match=words):
        report(**fact)


def test_valkey_is_known_by_its_own_version() -> None:
    found = report(server_name="valkey", valkey_version="9.1.2", redis_version="7.2.4")
    assert (found.server, found.version) == ("valkey", "9.1.2")
    assert (report().server, report().version) == ("redis", "7.0.15")


def test_wrong_and_missing_passwords_are_told_apart_and_never_printed(guarded: int) -> None:
    def ping(client: RedisClient) -> object:
        return client.ping()

    where = f"127.0.0.1:{guarded}"
    assert "wants a password" in refusal(connect_url(f"redis://{where}"), ping)
    assert "wrong user name or password" in refusal(connect_url(f"redis://:letmein@{where}"), ping)
    assert "wrong user name or password" in refusal(connect_url(f"redis://nobody:hunter2@{where}"), ping)


def test_a_user_without_the_right_is_told_so(guarded: int) -> None:
    client = connect_url(f"redis://reader:letmein@127.0.0.1:{guarded}")
    assert client.get("key") is None
    assert "lacks a right" in refusal(client, lambda c: c.set("key", "value"))
    with pytest.raises(BrokerError, match="lacks a right"):
        check_broker(client)


def test_a_database_that_is_not_there_is_named(guarded: int) -> None:
    client = connect_url(f"redis://:hunter2@127.0.0.1:{guarded}/99")
    assert "no database of that number" in refusal(client, lambda c: c.ping(), BrokerError)


def test_a_replica_refuses_writes_with_its_reason(guarded: int) -> None:
    client = connect_url(f"redis://:hunter2@127.0.0.1:{guarded}")
    client.replicaof("127.0.0.1", "1")
    with pytest.raises(BrokerUnreachable, match="read-only replica"):
        check_broker(client)
    assert "read-only replica" in refusal(client, lambda c: c.set("key", "value"))
    script = client.register_script("return redis.call('SET', KEYS[1], 'x')")
    assert "read-only replica" in refusal(client, lambda _: script(keys=["key"]))


def test_nobody_listening_is_connection_refused() -> None:
    client = connect_url("redis://user:hunter2@127.0.0.1:1/3")
    line = refusal(client, lambda c: c.ping(), BrokerUnreachable)
    assert line == "cannot do it: Redis at 127.0.0.1:1, database 3: connection refused"


def test_a_socket_that_is_not_there_is_named(tmp_path: Path) -> None:
    client = connect_url(f"unix://{tmp_path}/none.sock")
    line = refusal(client, lambda c: c.ping(), BrokerUnreachable)
    assert line == f"cannot do it: Redis at {tmp_path}/none.sock: no such file or directory"


def test_a_host_that_does_not_exist_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    line = refusal(connect_url("redis://:hunter2@host.invalid/0"), lambda c: c.ping(), BrokerUnreachable)
    assert line == "cannot do it: Redis at host.invalid:6379: name or service not known"


def test_a_frozen_server_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        client = connect_url(f"redis://:hunter2@127.0.0.1:{frozen.getsockname()[1]}")
        for option in ("socket_timeout", "socket_connect_timeout"):
            client.connection_pool.connection_kwargs[option] = 0.1
        assert "no answer within" in refusal(client, lambda c: c.ping(), BrokerUnreachable)


def test_something_else_on_the_port_is_one_line() -> None:
    assert "hunter2" not in problem(redis_py.InvalidResponse("Protocol Error: b'HTTP hunter2'"), "hunter2")


def test_for_the_trail_every_trouble_is_the_same_error() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    for error in (redis_py.ConnectionError("gone"), redis_py.OutOfMemoryError("full"), OSError(28, "No space")):
        with pytest.raises(TrailUnavailable), trail_translated(client, "cannot write"):
            raise error


def test_our_own_errors_and_bugs_pass_unchanged() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    for error in (KeyError("bug"), BrokerUnsafe("unsafe")):
        with pytest.raises(type(error)), translated(client, "cannot do it"):
            raise error


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "scheme '' is not known"),
        ("localhost:6379", "scheme 'localhost' is not known"),
        ("http://:hunter2@host", "scheme 'http' is not known"),
        ("redis://", "no host"),
        ("redis://:hunter2@", "no host"),
        ("redis://host:port", "port is not a number"),
        ("redis://:hunter2@host:99999", "port is not a number"),
        ("redis://host/shop", "database must be a number"),
        ("unix://", "no socket path"),
        ("unix:///", "no socket path"),
        ("redis://host/²", "database must be a number"),
        ("redis://:hunter2@host?foo=bar", "parameter 'foo' is not known; known are db, username, password"),
        ("redis://:hunter2@host?socket_timeout=abc", "parameter 'socket_timeout' is not known"),
        ("redis://host?health_check_interval=x", "parameter 'health_check_interval' is not known"),
        ("redis://host?decode_responses=", "parameter 'decode_responses' is not known"),
        ("redis://:hunter2@host?db=abc", "parameter 'db' must be a number, and is 'abc'"),
        ("unix:///run/r.sock?db=-1", "parameter 'db' must be a number, and is '-1'"),
        ("unix:///run/r.sock?foo=bar", "parameter 'foo' is not known"),
        ("redis://host?ssl_ca_certs=/ca.pem", "ssl_ parameters mean nothing without TLS"),
        ("rediss://host?ssl_foo=bar", "parameter 'ssl_foo' is not known; known are ssl_ca_certs"),
        ("rediss://host?foo=bar", "parameter 'foo' is not known"),
        ("sentinel://host?master=m&foo=bar", "parameter 'foo' is not known"),
        ("sentinel://[host?master=m", "a host is not possible"),
        ("sentinels://host?master=m&ssl_foo=bar", "parameter 'ssl_foo' is not known"),
    ],
)
def test_a_url_that_cannot_be_right_names_the_setting_and_not_the_secret(url: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connect_url(url)
    assert str(caught.value).startswith(f"REMESH_REDIS_URL: {words}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://u:p@h:7000?db=3", "redis://h:7000/1?username=u&password=p&db=3", "rediss://u:p@h:7000/3"]
)
def test_parameters_that_are_known_reach_the_client(url: str) -> None:
    connection: Any = connect_url(url).connection_pool.make_connection()
    assert (connection.username, connection.password, connection.db) == ("u", "p", 3)


def test_places_name_host_and_database_and_no_secret(server: EmbeddedRedis) -> None:
    assert place(connect_url("redis://user:hunter2@host:7000/2")) == "Redis at host:7000, database 2"
    assert place(connect_url("rediss://:hunter2@host")) == "Redis at host:6379"
    assert place_of("redis://user:hunter2@host/2") == "Redis at host:6379"
    assert place_of("redis+socket://:hunter2@/tmp/x%20y.sock?virtual_host=0") == "Redis at /tmp/x y.sock"
    assert place(connect(settings_for(server))) == f"Redis at {server.folder}/redis.sock"
