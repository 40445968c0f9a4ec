"""`make -C qa processors`: run the engine's fast tests with OpenBLAS and numpy computing as on other processors.

Environment variables select the kernels of another processor. Kernels whose instructions this processor lacks are
skipped with a line; if the libraries ignore the variables, the run fails. Arguments are passed to pytest.
`tests/engine/reproducibility/test_bits.py` compares the bits under all kernels.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from qa.frame import say

ENGINE = Path("tests/engine")
BITS = ENGINE / "reproducibility" / "test_bits.py"  # it selects processors itself
KERNELS = {
    "Haswell": ("avx2", "fma"),
    "Sandybridge": ("avx",),
    "Nehalem": ("sse4_2",),
    "SkylakeX": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
}
WIDE_UNITS = "X86_V4 AVX512_ICL AVX512_SPR X86_V3"  # of numpy
# Prints the OpenBLAS kernels and the vector units that numpy dispatches to.
PROBE = """
import numpy, scipy.linalg
from numpy._core import _multiarray_umath as core
from threadpoolctl import threadpool_info
print(*sorted({one["architecture"] for one in threadpool_info() if one["internal_api"] == "openblas"}))
print(*(name for name in core.__cpu_dispatch__ if core.__cpu_features__[name]))
"""


@dataclass(frozen=True)
class Setting:
    """Environment variables that select kernels, the processor flags that these need, and how to see the effect.

    The effect is that OpenBLAS reports `kernel`, or, with `no_units`, that numpy reports no vector units.
    """

    name: str
    environment: dict[str, str]
    flags: tuple[str, ...] = ()
    kernel: str | None = None
    no_units: bool = False


def main(arguments: list[str]) -> int:
    """Run the tests under each setting that this processor supports; return 1 if any fails."""
    flags = processor_flags(Path("/proc/cpuinfo"))
    kernel, units = probe_kernels({})
    failed = []
    say("Bits under every setting.")
    if run_tests([str(BITS), "-m", "", *arguments], {}):
        failed.append("comparison of bits")
    settings = [Setting(name, {"OPENBLAS_CORETYPE": name}, needed, name) for name, needed in KERNELS.items()]
    settings.append(Setting("no wide vectors", {"NPY_DISABLE_CPU_FEATURES": " ".join(units)}, no_units=True))
    for setting in settings:
        missing = [flag for flag in setting.flags if flag not in flags]
        is_own, has_no_units = setting.kernel and kernel == [setting.kernel], setting.no_units and not units
        if missing or is_own or has_no_units:
            reason = f"this processor has no {', '.join(missing)}" if missing else "it is the default of this processor"
            say(f"{setting.name}: SKIPPED, {reason}.")
            continue
        kernels, active = probe_kernels(setting.environment)
        if (setting.kernel and kernels != [setting.kernel]) or (setting.no_units and active):
            say(f"{setting.name}: FAILED, without effect: OpenBLAS has {kernels}, numpy {active}.")
            failed.append(setting.name)
            continue
        say(f"{setting.name}: OpenBLAS has {' '.join(kernels)}, numpy {' '.join(active) or 'its baseline'}.")
        if run_tests([str(ENGINE), f"--ignore={BITS}", *arguments], setting.environment):
            failed.append(setting.name)
    say(f"FAILED under {', '.join(failed)}." if failed else "Passed under every setting of this processor.")
    return int(bool(failed))


def run_tests(options: list[str], changes: dict[str, str]) -> int:
    """Run pytest with `changes` of the environment, and return its exit code."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", *options]
    return subprocess.run(command, env=environment(changes), check=False).returncode


def environment(changes: dict[str, str]) -> dict[str, str]:
    """Return the environment of this process with one BLAS thread and `changes`, without its own kernel settings."""
    inherited = {k: v for k, v in os.environ.items() if k not in {"OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"}}
    return {**inherited, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **changes}


def probe_kernels(changes: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the OpenBLAS kernels and numpy's vector units that a process with `changes` of the environment uses."""
    process = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment(changes), check=True, capture_output=True, text=True
    )
    kernels, units = process.stdout.splitlines()
    return kernels.split(), units.split()


def oldest_processor() -> dict[str, str]:
    """Return environment variables with which OpenBLAS and numpy compute as on the oldest processor that they know."""
    return {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": WIDE_UNITS}


def other_processors() -> list[dict[str, str]]:
    """Return environments that select the kernels of other processors, the oldest first; empty except on x86-64.

    OpenBLAS does not check the processor for the instructions of a kernel, so the flags decide.
    """
    if platform.machine() not in {"x86_64", "AMD64"}:
        return []
    flags = processor_flags(Path("/proc/cpuinfo"))
    kernels = [name for name, needed in (*KERNELS.items(), ("Prescott", ())) if flags.issuperset(needed)]
    return [
        oldest_processor(),
        *({"OPENBLAS_CORETYPE": name} for name in kernels),
        {"NPY_DISABLE_CPU_FEATURES": WIDE_UNITS},
    ]


def processor_flags(cpuinfo: Path) -> set[str]:
    """Return the flags of the first processor; empty if the system does not list them."""
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
