"""The cache of compiled code, and what happens without a compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from numba.core import event
listener = event.RecordingListener()
event.register("numba:compile", listener)
from glle_engine.linalg.dense_kernels import hypotenuse
print(hypotenuse(3.0, 4.0), [e.data["dispatcher"].py_func.__name__ for _, e in listener.buffer if e.is_start])
"""


def start(cache: str) -> subprocess.Popen[str]:
    """Start a process that calls a compiled function, and prints which functions it had to compile."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_disabled_compiler_is_named_with_the_remedy() -> None:
    """With NUMBA_DISABLE_JIT, the import of the engine fails with a remedy."""
    done = subprocess.run(
        [sys.executable, "-c", "from glle_engine import fit"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: NUMBA_DISABLE_JIT is set, and the engine runs only compiled. Unset NUMBA_DISABLE_JIT."
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no locks of bytes")
def test_processes_compile_a_function_once(tmp_path: Path) -> None:
    """Of two processes, one compiles and says so, while the other waits; later processes read the cache."""
    together = [start(str(tmp_path)) for _ in range(2)]
    outcomes = [process.communicate() for process in together]
    outcomes.append(start(str(tmp_path)).communicate())
    assert "".join(out for out, _ in outcomes).count("'hypotenuse'") == 1
    assert all(out.startswith("5.0") for out, _ in outcomes)
    messages = [message for _, message in outcomes if message]
    assert len(messages) == 1
    assert messages[0].startswith("Compiling the engine, once on this machine")
    assert len(list(tmp_path.rglob("dense_kernels.hypotenuse*.nbc"))) == 1


def test_without_a_place_to_write_to_code_is_compiled_for_the_process() -> None:
    """On a read-only machine, a process compiles its code without a cache."""
    out, message = start(os.devnull + "/cache").communicate()
    assert "'hypotenuse'" in out
    assert message.startswith("Compiling the engine")
