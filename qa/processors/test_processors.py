"""Tests of the program that selects other processors' kernels."""

from __future__ import annotations

from pathlib import Path

from qa.processors import __main__

FLAGS = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "avx", "sse4_2"}


def test_the_tests_left_out_exist() -> None:
    """Pytest ignores an unknown path without a word, and would run the slow tests under every setting."""
    root = Path(__file__).parents[2]
    left_out = [argument.partition("=")[2] for argument in __main__.command([]) if argument.startswith("--")]
    assert len(left_out) == len(__main__.SLOW) + len(__main__.PRETENDERS)
    assert all((root / path).is_file() for path in left_out)
