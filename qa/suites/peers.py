"""`make -C qa peers`: run the tests of umap-learn, openTSNE and pacmap on the engine's methods that use them.

    make -C qa peers PEERS="umap=CHECKOUT pacmap=CHECKOUT"

The tests of openTSNE are in its source distribution. The tests of umap-learn and pacmap are only in their repositories:
give a checkout of the installed version. A library whose tests are missing is left out, with a line that says so.

A stand-in (see `qa.suites`) calls the engine, and the engine calls the library's own class. Arguments of the stand-in
become parameters of the engine's method, or its `options`. Arguments that only choose how a result is computed have no
effect, and a metric that the engine lacks is replaced by a matrix of distances. Test files that use other classes, or
only functions of the library, are left out.
"""

from __future__ import annotations

import importlib
import inspect
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import openTSNE
import pacmap
import umap
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin

from glle_engine.base.errors import GlleError
from glle_engine.methods import METHODS
from qa.frame import ROOT, say
from qa.suites.runs import Fits, Suite, alone, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.methods import Embedding

COPIES = ROOT / "out" / "peers"
CLASSES = {  # where tests look for each class
    umap.UMAP: [(umap, "UMAP")],
    openTSNE.TSNE: [(openTSNE, "TSNE")],
    pacmap.PaCMAP: [(pacmap, "PaCMAP"), (pacmap.pacmap, "PaCMAP")],
}
METRICS = {"l1": "manhattan", "cityblock": "manhattan", "taxicab": "manhattan", "l2": "euclidean", "linf": "chebyshev"}


@contextmanager
def library_itself() -> Iterator[None]:
    """Put the library's own classes back in place of the stand-ins while the engine computes."""
    present = [(module, name, getattr(module, name)) for places in CLASSES.values() for module, name in places]
    for original, places in CLASSES.items():
        for module, name in places:
            setattr(module, name, original)
    try:
        yield
    finally:
        for module, name, stand_in in present:
            setattr(module, name, stand_in)


class StandIn(ClassNamePrefixFeaturesOutMixin, BaseEstimator, Fits):  # type: ignore[misc]  # untyped bases
    """Base of the stand-ins; each subclass has the `__init__` of the class that it replaces."""

    renamed: ClassVar[dict[str, str]] = {}  # arguments with another name than the engine's parameter
    algorithm: ClassVar[set[str]] = set()  # arguments that choose how a result is computed, and not what
    method: str  # name of the method in the engine

    def parameters(self) -> dict[str, Any]:
        """Return the arguments that differ from their defaults, as parameters of the engine's method.

        Arrays are left out: they are initial coordinates, which `fit` passes to `embed`.
        """
        defaults = {name: each.default for name, each in inspect.signature(type(self).__init__).parameters.items()}
        parameters, options = dict[str, Any](), dict[str, Any]()
        for name, value in self.get_params().items():
            if name in self.algorithm or isinstance(value, np.ndarray) or value == defaults[name]:
                continue
            parameter = self.renamed.get(name, name)
            is_known = parameter in METHODS[self.method].spec.parameters()
            (parameters if is_known else options)[parameter if is_known else name] = value
        if isinstance(seed := self.random_state, np.random.RandomState) or seed is None:
            seed = np.random.default_rng().integers(2**31)
        return {**parameters, "seed": int(seed), **({"options": options} if options else {})}

    def embed(self, X: Any, y: Any = None, init: Any = None) -> Embedding:
        """Embed X by the engine, with classes y and initial coordinates `init` if they are given."""
        Fits.used.add("refused")
        X, parameters = self.with_metric(X if issparse(X) else np.asarray(X), self.parameters())
        self.key_ = key_of(self.method, X, parameters)
        Fits.used.add(self.key_)
        with library_itself():
            method = METHODS[self.method]
            self.result_ = method.embed(X, method.spec.from_dict(parameters), labels=y, init=init)
        Fits.used.discard("refused")
        return self.result_

    def with_metric(self, X: Any, parameters: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return data and parameters with a metric that the engine has.

        For any other metric the data become a matrix of distances, and the metric "precomputed".
        """
        metric = parameters.get("metric", "euclidean")
        metric = METRICS.get(metric, metric) if isinstance(metric, str) else metric
        words = METHODS[self.method].spec.parameters()["metric"].words
        is_known = callable(metric) or (isinstance(metric, str) and metric in umap.distances.named_distances)
        if metric in words or not is_known:
            return X, {**parameters, "metric": metric}
        points = X.toarray() if issparse(X) else X
        keywords = getattr(self, "metric_kwds", None) or getattr(self, "metric_params", None) or {}
        function = umap.distances.named_distances.get(metric, metric) if isinstance(metric, str) else metric
        D = umap.distances.pairwise_special_metric(points, metric=function, kwds=keywords)
        return D, {**parameters, "metric": "precomputed"}

    @property
    def embedding_(self) -> NDArray[Any]:
        """The embedding (n, p), float32."""
        Fits.used.add(self.key_)
        return self.placed(self.result_.Y.astype(np.float32))

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def fit_transform(self, X: Any, *arguments: Any, **keywords: Any) -> NDArray[Any]:
        """Fit, and return the embedding."""
        return np.asarray(self.fit(X, *arguments, **keywords).embedding_)

    def transform(self, X: Any, **_: Any) -> NDArray[Any]:
        """Return coordinates of new points by the fitted method, as float32."""
        Fits.used.add(self.key_)
        with library_itself():
            return self.placed(self.result_.transform(X).astype(np.float32))


class UMAP(StandIn):
    """Stand-in for `umap.UMAP`, which is UMAP or densMAP."""

    __init__ = umap.UMAP.__init__
    renamed: ClassVar = {"n_epochs": "max_iter", "dens_lambda": "density_weight", "dens_frac": "density_share"}
    algorithm: ClassVar = {
        *("n_jobs", "random_state", "low_memory", "force_approximation_algorithm", "angular_rp_forest", "densmap"),
        *("transform_queue_size", "tqdm_kwds", "verbose", "precomputed_knn", "metric_kwds", "target_weight"),
    }

    def parameters(self) -> dict[str, Any]:
        """Return the parameters; `target_weight` is one only of a supervised map."""
        weight = {"target_weight": self.target_weight} if self.is_supervised_ else {}
        return {**super().parameters(), **weight}

    def fit(self, X: Any, y: Any = None, **_: Any) -> Self:
        """Fit X; y are classes for a supervised map."""
        self.is_supervised_, self.method = y is not None, "densmap" if self.densmap else "umap"
        self.embed(X, y, self.init if isinstance(self.init, np.ndarray) else None)
        return self

    def inverse_transform(self, places: Any) -> NDArray[Any]:
        """Return points with d features for places in the map, by the engine's inverse."""
        Fits.used.add(self.key_)
        with library_itself():
            return self.placed(self.result_.inverse_transform(places))


class PaCMAP(StandIn):
    """Stand-in for `pacmap.PaCMAP`."""

    __init__ = pacmap.PaCMAP.__init__
    method = "pacmap"
    renamed: ClassVar = {
        "MN_ratio": "mid_near_ratio",
        "FP_ratio": "further_ratio",
        "lr": "learning_rate",
        "num_iters": "max_iter",
    }
    algorithm: ClassVar = {"random_state", "save_tree", "verbose"}

    def parameters(self) -> dict[str, Any]:
        """Return the parameters; `max_iter` is the number of iterations of the last of PaCMAP's three phases."""
        parameters = super().parameters()
        if tuple(self.num_iters[:2]) == (100, 100):
            parameters["max_iter"] = self.num_iters[2]
        return parameters

    def fit(self, X: Any, init: Any = None, save_pairs: bool = True) -> Self:  # noqa: FBT001, FBT002 # its signature
        """Fit X from the initial coordinates `init`, if they are an array."""
        del save_pairs
        self.embed(X, init=init if isinstance(init, np.ndarray) else None)
        return self

    def transform(self, X: Any, basis: Any = None, **_: Any) -> NDArray[Any]:
        """Return coordinates of new points; `basis` has no effect."""
        del basis
        return super().transform(X)


class Map(np.ndarray):
    """An array of coordinates with the method `transform`, as openTSNE's `fit` returns it."""

    model: TSNE | None

    def __array_finalize__(self, whole: Any) -> None:
        self.model = getattr(whole, "model", None)

    def transform(self, X: Any) -> NDArray[Any]:
        """Return coordinates of new points by the stand-in that made this array."""
        assert self.model is not None
        return self.model.transform(X)


class TSNE(StandIn):
    """Stand-in for `openTSNE.TSNE`."""

    __init__ = openTSNE.TSNE.__init__
    method = "t-sne"
    renamed: ClassVar = {"early_exaggeration_iter": "early_iter", "n_iter": "max_iter", "initialization": "init"}
    algorithm: ClassVar = {
        "n_jobs",
        "random_state",
        "neighbors",
        "knn_kwargs",
        "verbose",
        "metric_params",
        "callbacks_every_iters",
    }

    def fit(self, X: Any = None, affinities: Any = None, initialization: Any = None) -> Map:
        """Fit X; raise `GlleError` for affinities, which the engine does not take."""
        if affinities is not None:
            raise GlleError("Affinities cannot be given.", remedy="Give points or distances.")
        init = self.initialization if initialization is None else initialization
        self.embed(X, init=init if isinstance(init, np.ndarray) else None)
        placed = self.placed(self.result_.Y).view(Map)
        placed.model = self
        return placed


STAND_INS = {"umap": UMAP, "openTSNE": TSNE, "pacmap": PaCMAP}
DISTRIBUTIONS = {"umap": "umap-learn", "openTSNE": "openTSNE", "pacmap": "pacmap"}
FOLDERS = {"umap": "umap/tests", "openTSNE": "tests", "pacmap": "test"}  # in a checkout
FILES = {
    "umap": [
        *("test_composite_models.py", "test_data_input.py", "test_densmap.py", "test_umap_get_feature_names_out.py"),
        *("test_umap_on_iris.py", "test_umap_ops.py", "test_umap_repeated_data.py", "test_umap_trustworthiness.py"),
        "test_umap_validation_params.py",
    ],
    "openTSNE": ["test_correctness.py", "test_different_usages.py", "test_tsne.py"],
    "pacmap": [
        *("test_general.py", "test_metric.py", "test_randomness.py", "test_transform.py"),
        "test_transform_iris.py",
    ],
}
SPARSE = "Distances are given for all pairs, as a dense matrix."
APART = "A point that is left without neighbors is an error, not a row of NaN."
MANY = "More neighbors than points, or too large a perplexity, are an error, and are not made smaller."
STEPS = "The map is optimized, and new points are placed, step by step or with options of their own."
NO_MAP = "Sparse data and distances have no map to new points."
OBJECT = "It reads or sets members of the library's object."
ANNOY = "The search annoy is not installed."
NETWORK = "It downloads data."
FAILING: dict[str, dict[str, str]] = {
    "umap": {
        "*: *unsupported operand type*": "Models are not combined by *, + and -.",
        "*: *no attribute 'update'*": "A fit is not updated by new points.",
        "*: *unique of umap-learn cannot be given*": "Equal points have rows of their own.",
        "*: *output_dens of umap-learn cannot be given*": "A result is an embedding, not a graph or radii.",
        "*: *transform_mode of umap-learn cannot be given*": "A result is an embedding, not a graph or radii.",
        "*: *no attribute 'graph_'*": OBJECT,
        "*: *has no setter*": OBJECT,
        "*: *has no map to new points*": NO_MAP,
        "*: *data are sparse, which*": SPARSE,
        "*: *gives * points no position*": APART,
        "test_umap_ops.py test_disconnected_data *-hellinger-*": APART,
        "test_umap_ops.py test_disconnected_data *-jaccard-*": APART,
        "*: *The labels have shape*": "Labels are integers.",
        "*: *needs more than * points*": MANY,
        "test_data_input.py test_check_input_data": "A function that is given as distances has no gradients.",
        "test_umap_validation_params.py test_umap_custom_distance_w_grad": (
            "A function that is given as distances has no gradients."
        ),
        "test_umap_validation_params.py test_umap_bad_n_jobs": "The number of threads has no effect.",
        "test_umap_validation_params.py test_umap_bad_hellinger_data": (
            "A metric that the engine lacks is computed without umap-learn's check of the data."
        ),
    },
    "openTSNE": {
        "*: *no attribute 'prepare_*": STEPS,
        "*: *unexpected keyword argument*": STEPS,
        "*: *max_iter=0 is not*": STEPS,
        "*: *Affinities cannot be given*": "Affinities and neighbors are not given.",
        "*: *no attribute 'affinities'*": OBJECT,
        "*: *is more than a third of the other*": MANY,
        "*: *is more than the * components that negative_gradient_method*": "Too many components are another error.",
        "*: *perplexity=[[]10, 30]*": "There is one perplexity.",
        "*: *negative_gradient_method=<function*": "Functions are no arguments.",
        "*: *has no map to new points*": NO_MAP,
        "test_tsne.py TestTSNEParameterFlow *": "It observes functions inside openTSNE.",
        "test_tsne.py TestTSNEEmebedding *": OBJECT,
        "test_different_usages.py TestUsageExplicitOptimizeCalls *": STEPS,
    },
    "pacmap": {
        "*: *annoy is not installed*": ANNOY,
        "*: *urlopen error*": NETWORK,
        "*: *no attribute 'tree'*": OBJECT,
        "*: *no attribute 'pair_XP'*": OBJECT,
        "test_general.py test_pacmap_nondeterministic_default faiss": "Without a seed the seed is 0.",
    },
}
SKIPPED = {
    "openTSNE": {
        "test_tsne.py TestMisc test_very_large_affinity_matrices": "It takes minutes, and uses no stand-in.",
        "test_tsne.py TestTSNECallbackParams test_can_pass_callbacks_to_tsne_object": "Functions are no arguments.",
    }
}


def checkout_of(name: str, folders: dict[str, str]) -> Path | None:
    """Return the folder with the source of a library: the one given in `folders`, or its source distribution.

    Returns None if there is neither.
    """
    if name in folders:
        return Path(folders[name]).resolve()
    if name != "openTSNE":
        return None
    folder, title = COPIES / "sources", f"{DISTRIBUTIONS[name]}=={version(DISTRIBUTIONS[name])}"
    words = ["download", "--quiet", "--no-deps", "--no-binary", DISTRIBUTIONS[name], "--dest", str(folder), title]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    archive = max(folder.glob("*.tar.gz"))
    shutil.unpack_archive(archive, folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def copied(name: str, checkout: Path) -> Path:
    """Copy the tests of a library out of their package, so that they import the installed one; return the folder."""
    target = COPIES / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(checkout / FOLDERS[name], target, ignore=shutil.ignore_patterns("__init__.py", "output"))
    for file in target.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for package in ("from tests.test", "from .test"):
            text = text.replace(package, "from test")
        text = text.replace("from ..umap_", "from umap")
        file.write_text(text, encoding="utf-8")
    return target


def run(name: str, folder: Path, words: list[str]) -> int:
    """Run the tests of a library in a folder; `words` are arguments of pytest.

    Returns 0 if exactly the tests in `FAILING` fail, otherwise 1.
    """
    for module, attribute in CLASSES[getattr(importlib.import_module(name), STAND_INS[name].__name__)]:
        setattr(module, attribute, STAND_INS[name])
    suite = Suite(folder, {f"`{file}`": file for file in FILES[name]}, FAILING[name], SKIPPED.get(name, {}))
    recorder, at_random = suite.run(words), suite.run(words, np.random.default_rng(0))
    say(f"{DISTRIBUTIONS[name]} {version(DISTRIBUTIONS[name])}")
    say(suite.table(recorder, at_random))
    say(f"{alone(recorder)} further tests pass that use {DISTRIBUTIONS[name]} alone.")
    wrong = suite.flaws(recorder)
    for line in wrong:
        say(line)
    return int(bool(wrong) or not recorder.fitted)


def main(arguments: list[str]) -> int:
    """Run the suite of each library in a process of its own, because their test files have equal names.

    The arguments `--only NAME FOLDER` run one suite in this process.
    """
    if arguments[:1] == ["--only"]:
        return run(arguments[1], Path(arguments[2]), arguments[3:])
    folders = dict(word.split("=", 1) for word in arguments if word.split("=")[0] in FILES and "=" in word)
    words = [word for word in arguments if word.split("=")[0] not in FILES]
    codes = []
    for name, title in DISTRIBUTIONS.items():
        checkout = checkout_of(name, folders)
        if checkout is None:
            say(f'{title} is distributed without its tests: give a checkout, PEERS="{name}=FOLDER".')
            continue
        command = [sys.executable, "-m", "qa.suites.peers", "--only", name, str(copied(name, checkout)), *words]
        work = COPIES / "work"
        (work / "test" / "output").mkdir(parents=True, exist_ok=True)  # where pacmap's tests write pictures
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        codes.append(subprocess.run(command, check=False, cwd=work, env=environment).returncode)
    return max(codes, default=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
