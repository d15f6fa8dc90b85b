"""The heartbeat's file, whatever the clock does."""

from pathlib import Path

import pytest

from watcher.health import STALE_SECONDS, Heartbeat, problem


def test_a_beat_is_written_although_the_clock_went_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, beats = tmp_path / "beat", Heartbeat(tmp_path / "beat")
    moments = {"wall": 90_000.0, "steady": 10.0}
    monkeypatch.setattr("watcher.health.time.time", lambda: moments["wall"])
    monkeypatch.setattr("watcher.health.time.monotonic", lambda: moments["steady"])
    beats.beat(synced=True)
    moments.update(wall=3_600.0, steady=12.0)

    beats.beat(synced=True)

    assert problem(path, 3_600.0) is None


def test_a_beat_from_before_the_clock_went_back_is_no_sign_of_life(tmp_path: Path) -> None:
    Heartbeat(path := tmp_path / "beat").beat(synced=True)
    at = path.stat().st_mtime
    assert problem(path, at) is None
    assert "hangs or has ended" in str(problem(path, at + STALE_SECONDS + 5))
    assert "hangs or has ended" in str(problem(path, at - STALE_SECONDS - 5))
