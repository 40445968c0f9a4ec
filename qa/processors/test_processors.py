"""Tests of the program that selects other processors' kernels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qa.processors import __main__

FLAGS = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "avx", "sse4_2"}


@pytest.fixture
def every_setting(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Pretend that the processor has every flag; return the probed environments."""
    probed_environments: list[dict[str, str]] = []

    def probed(changes: dict[str, str]) -> tuple[list[str], list[str]]:
        probed_environments.append(changes)
        units = [] if "NPY_DISABLE_CPU_FEATURES" in changes else ["X86_V3"]
        return [changes.get("OPENBLAS_CORETYPE", "Zen")], units

    monkeypatch.setattr(__main__, "probed", probed)
    monkeypatch.setattr(__main__, "processor_flags", lambda _: FLAGS)
    monkeypatch.setattr(__main__, "bits_command", lambda _: ends_with("0"))
    return probed_environments


def ends_with(code: str) -> list[str]:
    """Return a command that replaces the tests and exits with a code."""
    return [sys.executable, "-c", f"import os, sys; sys.exit({code})"]


def test_each_setting_runs_and_any_failure_counts(
    every_setting: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tests run in each environment; the report names the environments with failures."""
    monkeypatch.setattr(__main__, "command", lambda _: ends_with("0"))
    assert __main__.main([]) == 0
    assert [changes.get("OPENBLAS_CORETYPE") for changes in every_setting[1:]] == [
        "Haswell", "Sandybridge", "Nehalem", "SkylakeX", None,
    ]  # fmt: skip
    assert every_setting[-1] == {"NPY_DISABLE_CPU_FEATURES": "X86_V3"}
    monkeypatch.setattr(__main__, "command", lambda _: ends_with("os.environ.get('OPENBLAS_CORETYPE') == 'Nehalem'"))
    assert __main__.main([]) == 1
    assert "FAILED under Nehalem." in capsys.readouterr().out
    monkeypatch.setattr(__main__, "command", lambda _: ends_with("0"))
    monkeypatch.setattr(__main__, "bits_command", lambda _: ends_with("1"))
    assert __main__.main([]) == 1
    assert "FAILED under comparison of bits." in capsys.readouterr().out


def test_a_setting_without_effect_is_a_failure(
    every_setting: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Libraries that ignore the environment would only test the default."""
    monkeypatch.setattr(__main__, "command", lambda _: ends_with("0"))
    monkeypatch.setattr(__main__, "probed", lambda _: (["Zen"], ["X86_V3"]))
    assert __main__.main([]) == 1
    assert "FAILED under Haswell, Sandybridge, Nehalem, SkylakeX, no wide vectors." in capsys.readouterr().out


def test_missing_instructions_are_skipped_with_a_line(
    every_setting: list[dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """A kernel with unsupported instructions would crash the process."""
    monkeypatch.setattr(__main__, "command", lambda _: ends_with("0"))
    monkeypatch.setattr(__main__, "processor_flags", lambda _: {"sse4_2", "avx"})
    assert __main__.main([]) == 0
    output = capsys.readouterr().out
    assert "Haswell: SKIPPED, this processor has no avx2, fma." in output
    assert "SkylakeX: SKIPPED" in output
    assert {"OPENBLAS_CORETYPE": "Haswell"} not in every_setting
    monkeypatch.undo()
    listed = tmp_path / "cpuinfo"
    listed.write_text("processor : 0\nflags\t\t: fpu sse4_2 avx\n\nprocessor : 1\nflags\t\t: fpu\n", encoding="utf-8")
    assert __main__.processor_flags(listed) == {"fpu", "sse4_2", "avx"}
    assert __main__.processor_flags(tmp_path / "none") == set()


def test_the_tests_left_out_exist() -> None:
    """Pytest ignores an unknown path without a word, and would run the slow tests under every setting."""
    root = Path(__file__).parents[2]
    left_out = [argument.partition("=")[2] for argument in __main__.command([]) if argument.startswith("--")]
    assert len(left_out) == len(__main__.SLOW) + len(__main__.PRETENDERS)
    assert all((root / path).is_file() for path in left_out)
