"""Bits of results: a machine whose results would differ in bits starts no worker unless that is allowed."""

from __future__ import annotations

import pytest

from glle_engine.posterior.fingerprint import PINNED_FINGERPRINT
from worker.base.settings import Settings, SettingsError
from worker.execution import parent

OTHER = "0123456789abcdef"


def test_a_worker_with_other_bits_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names both fingerprints and the remedy; with the setting, the worker starts."""
    monkeypatch.setattr(parent, "fingerprint", lambda: PINNED_FINGERPRINT)
    parent.require_bits(Settings())
    monkeypatch.setattr(parent, "fingerprint", lambda: OTHER)
    parent.require_bits(Settings(allow_other_bits="on"))
    with pytest.raises(SettingsError, match=f"fingerprint {OTHER}, the published ones {PINNED_FINGERPRINT}") as error:
        parent.require_bits(Settings())
    assert "GLLE_ALLOW_OTHER_BITS=on" in str(error.value)
