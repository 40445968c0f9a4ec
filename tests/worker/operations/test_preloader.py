"""Preloader: whose children its processes are, how they end, and what they inherit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.worker.operations.preloader_head import CHECKS, MODULE
from worker.execution import process_guard

pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="needs a process that adopts orphans")


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_processes_of_a_preloader(check: str) -> None:
    """The checks hold, each in a separate process that adopts orphans; pytest itself must not."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, *MODULE, "head", check], check=True, env=environment)
