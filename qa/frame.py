"""What the programs of `qa` share: actions that repeat in threads, output, reports, and memory of this process."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def repeat(*actions: Callable[[], object], seconds: float = 0.0) -> Iterator[None]:
    """Repeat each action in a thread, at least once, until the context exits; then raise the first error.

    Parameters
    ----------
    seconds
        Pause between two calls.

    """
    is_over, errors = threading.Event(), list[Exception]()

    def loop(action: Callable[[], object]) -> None:
        try:
            action()
            while not is_over.wait(seconds):
                action()
        except Exception as error:  # noqa: BLE001 # raised by the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=loop, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


@dataclass
class Row:
    """Result of a check in a report: how many items were checked, and a text for each violation."""

    name: str
    checked: int
    violations: list[str] = field(default_factory=list)


def say(*lines: object) -> None:
    """Print lines at once, also if stdout is a file."""
    print(*lines, sep="\n", end="\n" if lines else "", flush=True)  # noqa: T201 # the command's output


def memory(name: str) -> int:
    """Return a field of /proc/self/status, such as VmHWM, in bytes; 0 except on Linux."""
    status = Path("/proc/self/status")
    lines = status.read_text("ascii").splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def reset_peak_memory() -> None:
    """Let the kernel measure the peak memory of this process (VmHWM) anew, where it can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def write_report(path: Path, report: Any) -> None:
    """Write a report as JSON, and create its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def align(lines: Iterable[Sequence[object]]) -> str:
    """Return lines of cells as a text with aligned columns; the first line has the headings."""
    words = [[str(value) for value in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    shown = [" | ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in words]
    return "\n".join([shown[0], "-|-".join("-" * width for width in widths), *shown[1:]])
