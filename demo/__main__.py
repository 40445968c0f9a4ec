"""`make demo`: upload data to a service, fit, draw and compare methods, with pictures in `out/`."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits

from demo.pictures import TITLES, Row, picture
from demo.service import running_service
from glle import Client, datasets, plot
from glle.progress import Bars
from glle_engine.metrics.ranks import disparity, trustworthiness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from rich.progress import TaskID

    from glle import Dataset, Posterior
    from glle.types import ProgressOut


METHODS: tuple[Literal["em", "direct"], ...] = ("em", "direct")
SCALES = (0.01, 0.1, 1.0, 5.0, 10.0)
PROBES = 1000
COMPARED = ("pca", "lle", "ltsa", "laplacian-eigenmaps", "diffusion-maps", "auto-reg-lle", "glle")

T = TypeVar("T")


class Lines(Bars):
    """Progress of the client's jobs, drawn by `rich`: one line for each step of the demo.

    Parameters
    ----------
    progress
        The display that has all lines.

    """

    def __init__(self, progress: Progress) -> None:
        super().__init__(switch=False)  # no bars beside the lines
        self.display: Progress = progress
        self.line: TaskID | None = None

    @contextmanager
    def bar(self, title: str) -> Iterator[Callable[[ProgressOut], None]]:  # noqa: ARG002 # the line has a title
        """Yield a function that shows the progress of a job on the line of the current step."""

        def update(progress: ProgressOut) -> None:
            if self.line is not None:
                done, total = progress["done"], progress["total"] or None
                self.display.update(self.line, completed=done, total=total, stage=progress["stage"])

        yield update


@dataclass
class Case:
    """A data set and a method of the posterior, with the draws and times that the demo measures."""

    name: str
    method: Literal["em", "direct"]
    dataset: Dataset
    X: NDArray[Any]
    color: NDArray[Any]
    reference: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    embeddings: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    scaled: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Data set and method, as the progress lines and the table name the case."""
        return f"{TITLES[self.name]} · {self.method}"


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--points", type=int, default=5000, help="points of each sheet (%(default)s)")
    parser.add_argument("--draws", type=int, default=8, help="draws of each posterior (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the pictures (%(default)s)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # raises SystemExit, so that the service stops
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    try:
        with running_service(options.workers) as url:
            console.print(f"The service is at {url} with {options.workers} workers on embedded servers.")
            cases, drawn = _run(url, console, options)
    except KeyboardInterrupt:
        console.print("Interrupted; the service is stopped.")
        return 130
    _table(console, cases, options.draws)
    for path in [*_pictures(options.out, cases), *drawn]:
        console.print(f"Picture: {path}")
    return 0


def _run(url: str, console: Console, options: argparse.Namespace) -> tuple[list[Case], list[Path]]:
    """Run all steps on the service at `url`; return the cases, and the paths of two pictures that are saved."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[stage]:<10}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        lines = Lines(progress)
        with Client(url, progress=lines) as client:
            cases = _upload_cases(client, options.points)
            fitted = [_follow(lines, f"fit   {case.title}", partial(_fit, client, case)) for case in cases]
            for case, posterior in zip(cases, fitted, strict=True):
                _follow(lines, f"draws {case.title}", partial(_draw, posterior, case, options.draws))
            for case, posterior in zip(cases, fitted, strict=True):
                _follow(lines, f"scale {case.title}", partial(_scales, posterior, case))
            options.out.mkdir(parents=True, exist_ok=True)
            roll = next(i for i, case in enumerate(cases) if case.name == "swiss_roll")
            drawn = [options.out / "summary.png", options.out / "methods.png"]
            _follow(lines, "summary Swiss roll", partial(_summarize, fitted[roll], cases[roll], drawn[0]))
            _follow(lines, "methods Swiss roll", partial(_compare_methods, client, cases[roll], drawn[1]))
    return cases, drawn


def _summarize(posterior: Posterior, case: Case, path: Path) -> None:
    """Save a plot of the posterior's summary: the mean embedding, in which points that move are faint."""
    figure = plot(posterior.summary(), labels=case.color).get_figure(root=True)
    assert figure is not None
    figure.savefig(path)


def _compare_methods(client: Client, case: Case, path: Path) -> None:
    """Let the service embed a data set by several methods, and save their embeddings side by side."""
    scores = ["trustworthiness", "procrustes"]
    methods: list[str | dict[str, Any]] = [*COMPARED, {"method": "isomap", "parameters": {"landmarks": 200}}]
    compared = client.compare(case.dataset, methods, truth=case.dataset, scores=scores, align="truth")
    embeddings = dict(compared.arrays)
    row = Row(case.name, case.X, case.color, embeddings.pop("lle"), np.array([*embeddings.values()]))
    picture(path, [row], [*embeddings], "Methods side by side")


def _upload_cases(client: Client, points: int) -> list[Case]:
    digits = load_digits()
    sets = [("digits", client.dataset(digits.data), digits.data, digits.target)]
    for name in datasets.NAMES:
        dataset = client.synthetic(name, points)
        fetched = dataset.arrays()
        sets.append((name, dataset, fetched["data"], fetched["coordinates"][:, 0]))
    return [Case(name, method, dataset, X, color) for name, dataset, X, color in sets for method in METHODS]


def _follow(lines: Lines, title: str, work: Callable[[], T]) -> T:
    """Run a step of the demo with a progress line of its own, and return the step's result."""
    task = lines.line = lines.display.add_task(title, total=None, stage="")
    result = work()
    total = lines.display.tasks[task].total or 1
    lines.display.update(task, total=total, completed=total, stage="done")
    lines.display.stop_task(task)
    return result


def _time_call(case: Case, name: str, work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = work()
    case.seconds[name] = time.perf_counter() - start
    return result


def _fit(client: Client, case: Case) -> Posterior:
    posterior: Posterior = _time_call(case, "fit", lambda: client.fit(case.dataset, method=case.method))
    again = _time_call(case, "fit again", lambda: client.fit(case.dataset, method=case.method))
    assert again == posterior
    case.seconds["fit on worker"] = posterior.metadata["seconds"]
    case.reference = posterior.arrays()["embedding"]
    return posterior


def _draw(posterior: Posterior, case: Case, count: int) -> None:
    drawn = _time_call(case, "draws", lambda: posterior.draws(count))
    again = _time_call(case, "draws again", lambda: posterior.draws(count))
    assert drawn.tobytes() == again.tobytes()
    case.embeddings = drawn


def _scales(posterior: Posterior, case: Case) -> None:
    case.scaled = posterior.draws(1, scales=list(SCALES))[:, 0]


def _table(console: Console, cases: list[Case], count: int) -> None:
    table = Table(title=f"{count} draws at scale 1; times as the client saw them, computed and asked for again")
    for heading in (
        "data",
        "n x d",
        "fit s",
        "again ms",
        "ms a draw",
        "again ms",
        "trust LLE",
        "trust draws",
        "spread",
    ):
        table.add_column(heading, justify="left" if heading in {"data", "n x d"} else "right", no_wrap=True)
    for case in cases:
        probes = np.random.default_rng(0).permutation(len(case.X))[:PROBES]
        trust = [trustworthiness(case.X, Y, points=probes) for Y in (case.reference, *case.embeddings)]
        spread = np.mean([disparity(a, b) for a, b in combinations(case.embeddings, 2)])
        table.add_row(
            case.title,
            "{:,} x {}".format(*case.X.shape),
            f"{case.seconds['fit']:.2f}",
            f"{case.seconds['fit again'] * 1e3:.0f}",
            f"{case.seconds['draws'] / count * 1e3:.1f}",
            f"{case.seconds['draws again'] / count * 1e3:.1f}",
            f"{trust[0]:.4f}",
            f"{np.mean(trust[1:]):.4f}",
            f"{spread:.3f}",
        )
    console.print(table)
    console.print(
        f"trust: trustworthiness with 10 neighbors over {PROBES:,} points, 1 is best; "
        "spread: mean Procrustes disparity of pairs of draws."
    )


def _pictures(folder: Path, cases: list[Case]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for method in METHODS:
        chosen = [case for case in cases if case.method == method]
        draws = [Row(c.name, c.X, c.color, c.reference, c.embeddings) for c in chosen]
        scales = [Row(c.name, c.X, c.color, c.reference, c.scaled) for c in chosen]
        columns = [f"draw {i}" for i in range(len(chosen[0].embeddings))]
        paths += [folder / f"draws_{method}.png", folder / f"scales_{method}.png"]
        picture(paths[-2], draws, columns, f"Embeddings drawn from one posterior ({method}), scale 1")
        picture(paths[-1], scales, [f"scale {a:g}" for a in SCALES], f"The same draw at five scales ({method})")
    return paths


if __name__ == "__main__":
    raise SystemExit(main())
