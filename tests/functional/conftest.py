"""Whole runs on fakes write thousands of small files: without fsync, since what a killed process wrote is not lost."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
