"""`make -C qa sklearn`: run scikit-learn's own tests of embeddings, as its wheel ships them, on the engine's methods.

A stand-in has the name and the signature of a class of scikit-learn, and fits `glle_engine.estimator.Embedding`.
Parameters that choose an algorithm for the same result have no effect. Others that the method lacks are refused, as an
unknown parameter is. `FAILING` says of each failing test why. A failure without a row, and a test that passes in spite
of a row, fail the run. A test that fits no stand-in tests scikit-learn alone and counts apart.

Left out are `test_mds.py` (SMACOF; the engine's scaling is classical), `test_t_sne.py` (mostly the gradients inside
scikit-learn) and `test_pca.py` (mostly its choice of solvers).
"""

from __future__ import annotations

import os
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pytest
import sklearn
from sklearn import decomposition, manifold
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from glle_engine.estimator import Embedding
from qa.frame import say

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUITES = (
    "manifold/tests/test_locally_linear.py",
    "manifold/tests/test_isomap.py",
    "manifold/tests/test_spectral_embedding.py",
    "manifold/tests/test_classical_mds.py",
    "decomposition/tests/test_factor_analysis.py",
    "decomposition/tests/test_kernel_pca.py",
)
# They choose how a result is computed, or its thread, stream or copy.
ALGORITHM = {
    "eigen_solver",
    "eigen_tol",
    "tol",
    "max_iter",
    "path_method",
    "neighbors_algorithm",
    "n_jobs",
    "random_state",
    "hessian_tol",
    "modified_tol",
    "svd_method",
    "iterated_power",
    "copy",
    "copy_X",
}
LLE = {"standard": "lle", "modified": "modified-lle", "hessian": "hessian-lle", "ltsa": "ltsa"}

APART = "A given n_neighbors whose graph falls apart is an error, with the smallest number that connects it."
BLOBS = "Its blobs lie apart: a given n_neighbors whose graph falls apart is an error."
GRAPH = "Distances are given for all pairs, as a dense matrix; a sparse graph is given apart from the points."
THREE = "Its 3 points are too few: an embedding in 2 dimensions needs 4."
AFFINITY = "A graph is made from points or distances; affinities are not taken."
INVERSE = "Kernel PCA has no map back to the data."
WORDS = "The error, a ValueError too, has other words."
KERNEL = "A kernel is a name; no matrix of it is taken."
SPANNED = "More components than the data span are an error."
# A pattern of tests (a file, a test, its parameters) and the reason why they fail.
FAILING = {
    "test_locally_linear.py test_get_feature_names_out": BLOBS,
    "test_isomap.py test_isomap_reconstruction_error *": (
        "Isomap states its residual variance, not the error of its kernel."
    ),
    "test_isomap.py test_transform float64-2-None": APART,
    "test_isomap.py test_pipeline float64-2-None": APART,
    "test_isomap.py test_pipeline_with_nearest_neighbors_transformer *": GRAPH,
    "test_isomap.py test_different_metric *-1-False": "The metrics are few: there is no Manhattan distance.",
    "test_isomap.py test_different_metric *<lambda>*": "A metric is a name; other distances are given as a matrix.",
    "test_isomap.py test_isomap_clone_bug": "The search of neighbors is no attribute.",
    "test_isomap.py test_isomap_fit_precomputed_radius_graph *": GRAPH,
    "test_isomap.py test_isomap_fitted_attributes_dtype *": THREE,
    "test_isomap.py test_isomap_dtype_equivalence": THREE,
    "test_isomap.py test_isomap_raise_error_when_neighbor_and_radius_both_set": WORDS,
    "test_isomap.py test_multiple_connected_components": APART,
    "test_isomap.py test_multiple_connected_components_metric_precomputed *": "A graph has at least 2 neighbors.",
    "test_isomap.py test_get_feature_names_out": BLOBS,
    "test_spectral_embedding.py test_spectral_embedding_two_components *": AFFINITY,
    "test_spectral_embedding.py test_spectral_embedding_precomputed_affinity *": AFFINITY,
    "test_spectral_embedding.py test_precomputed_nearest_neighbors_filtering": AFFINITY,
    "test_spectral_embedding.py test_spectral_embedding_callable_affinity *": AFFINITY,
    "test_spectral_embedding.py test_pipeline_spectral_clustering": BLOBS,
    "test_spectral_embedding.py test_spectral_embedding_preserves_dtype *": (
        "The embedding keeps its type; the affinities are no attribute."
    ),
    "test_spectral_embedding.py test_error_pyamg_not_available": "The solver is the engine's choice.",
    "test_classical_mds.py test_classical_mds_wrong_inputs": WORDS,
    "test_classical_mds.py test_classical_mds_metric_params": (
        "Scaling takes points or dissimilarities, without other metrics."
    ),
    "test_factor_analysis.py test_factor_analysis *": (
        "The result has the last log-likelihood, not one for each iteration."
    ),
    "test_kernel_pca.py test_kernel_pca 42": INVERSE,
    "test_kernel_pca.py test_kernel_pca_invalid_parameters": WORDS,
    "test_kernel_pca.py test_kernel_pca_sparse *": "Kernel PCA takes dense data.",
    "test_kernel_pca.py test_remove_zero_eig": "Equal points are an error, not an embedding without columns.",
    "test_kernel_pca.py test_leave_zero_eig": SPANNED,
    "test_kernel_pca.py test_kernel_pca_precomputed*": KERNEL,
    "test_kernel_pca.py test_gridsearch_pipeline_precomputed": KERNEL,
    "test_kernel_pca.py test_nested_circles": INVERSE,
    "test_kernel_pca.py test_kernel_conditioning": INVERSE,
    "test_kernel_pca.py test_precomputed_kernel_not_psd *": KERNEL,
    "test_kernel_pca.py test_kernel_pca_solvers_equivalence *": SPANNED,
    "test_kernel_pca.py test_kernel_pca_inverse_transform_reconstruction": INVERSE,
    "test_kernel_pca.py test_kernel_pca_raise_not_fitted_error": INVERSE,
    "test_kernel_pca.py test_kernel_pca_inverse_correct_gamma *": INVERSE,
}


class StandIn(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """A class of scikit-learn by the engine; subclasses have the signature of that class."""

    fits: ClassVar[int] = 0

    def chosen(self, n: int, d: int, given: dict[str, Any]) -> str:
        """Return the name of the method, and rewrite the given parameters to be the engine's."""
        raise NotImplementedError

    def scale(self, n: int) -> float:  # noqa: ARG002 # of the subclass
        """Return scikit-learn's size of an embedding of n points, relative to the engine's."""
        return 1.0

    def fit(self, X: Any, y: object = None) -> Self:
        """Fit the method."""
        del y
        StandIn.fits += 1
        given = {name: value for name, value in self.get_params().items() if name not in ALGORITHM}
        n, d = np.shape(X)
        name = self.chosen(n, d, given)
        self.model_ = Embedding(name, **{word: value for word, value in given.items() if value is not None}).fit(X)
        self.size_ = self.scale(n)
        self.embedding_ = self.model_.embedding_ * self.model_.embedding_.dtype.type(self.size_)
        self._n_features_out = self.embedding_.shape[1]
        return self

    def fit_transform(self, X: Any, y: object = None) -> NDArray[Any]:
        """Fit, and return the embedding."""
        return np.asarray(self.fit(X, y).embedding_)

    def transform(self, X: Any) -> NDArray[Any]:
        """Place new points."""
        placed: NDArray[Any] = self.model_.transform(X)
        return np.asarray(placed * placed.dtype.type(self.size_))


class LocallyLinearEmbedding(StandIn):
    """LLE and its variants; scikit-learn's columns have length 1, the engine's the root of n."""

    __init__ = manifold.LocallyLinearEmbedding.__init__

    def chosen(self, n: int, d: int, given: dict[str, Any]) -> str:
        """Return the variant; only LLE has a regularisation."""
        del n, d
        name = LLE[given.pop("method")]
        if name != "lle":
            del given["reg"]
        return name

    def scale(self, n: int) -> float:
        """Return 1 / sqrt(n)."""
        return 1 / float(np.sqrt(n))

    @property
    def reconstruction_error_(self) -> float:
        """The sum of the eigenvalues."""
        return float(np.sum(np.asarray(self.model_.result_.eigenvalues)))


class Isomap(StandIn):
    """Isomap."""

    __init__ = manifold.Isomap.__init__

    def chosen(self, n: int, d: int, given: dict[str, Any]) -> str:
        """Name the Euclidean metric, and all points as neighbors."""
        del d
        if given["metric"] == "minkowski" and given["p"] == 2:
            given["metric"] = "euclidean"
        if given["radius"] == np.inf:  # of all points; the engine's radius is finite
            given |= {"radius": None, "n_neighbors": n - 1}
        if given["p"] == 2 or given["metric"] == "euclidean":
            del given["p"]
        return "isomap"


class SpectralEmbedding(StandIn):
    """Laplacian eigenmaps; an affinity "rbf" is the heat kernel on the graph of all pairs."""

    __init__ = manifold.SpectralEmbedding.__init__

    def chosen(self, n: int, d: int, given: dict[str, Any]) -> str:
        """Name the weights."""
        affinity, gamma = given.pop("affinity"), given.pop("gamma")
        if affinity == "rbf":
            given |= {"weights": "heat", "epsilon": 1 / (gamma or 1 / d), "n_neighbors": n - 1}
        elif affinity == "nearest_neighbors":
            given |= {"weights": "simple", "n_neighbors": given["n_neighbors"] or max(n // 10, 1)}
        else:
            given["affinity"] = affinity
        return "laplacian-eigenmaps"


class ClassicalMDS(StandIn):
    """Classical scaling."""

    __init__ = manifold.ClassicalMDS.__init__

    def chosen(self, n: int, d: int, given: dict[str, Any]) -> str:
        """Name the dissimilarities."""
        del n, d
        given["dissimilarity"] = given.pop("metric")
        return "mds"

    @property
    def eigenvalues_(self) -> NDArray[Any]:
        """The eigenvalues."""
        return np.asarray(self.model_.result_.eigenvalues)


class FactorAnalysis(StandIn):
    """Factor analysis."""

    __init__ = decomposition.FactorAnalysis.__init__

    def chosen(self, n: int, d: int, given: dict[str, Any]) -> str:
        """Name as many factors as features by default."""
        del n
        given["n_components"] = d if given["n_components"] is None else given["n_components"]
        return "factor-analysis"


class KernelPCA(StandIn):
    """Kernel PCA."""

    __init__ = decomposition.KernelPCA.__init__

    def chosen(self, n: int, d: int, given: dict[str, Any]) -> str:
        """Name the kernel, and leave defaults of the map back to the data away."""
        given["n_components"] = min(n - 1, d) if given["n_components"] is None else given["n_components"]
        kernel = given["kernel"]
        given["kernel"] = "polynomial" if kernel == "poly" else kernel
        gamma, degree, offset = given.pop("gamma"), given.pop("degree"), given.pop("coef0")
        if kernel in ("rbf", "poly"):
            given["gamma"] = gamma or 1 / d
        if kernel == "poly":
            given |= {"degree": degree, "offset": float(offset)}
        del given["alpha"]
        for switch in ("fit_inverse_transform", "remove_zero_eig"):
            given[switch] = given[switch] or None
        return "kernel-pca"


class Recorder:
    """Pytest plugin: whether each test passed, and whether it fitted a stand-in."""

    def __init__(self) -> None:
        self.passed: dict[str, bool] = {}
        self.fitted: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        """Count the fits of a test."""
        before = StandIn.fits
        try:
            return (yield)
        finally:
            if StandIn.fits > before:
                self.fitted.add(short(item.nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the result; skipped tests have none."""
        if report.failed or (report.when == "call" and report.passed):
            self.passed[short(report.nodeid)] = report.passed


def short(nodeid: str) -> str:
    """Return the file, the test and its parameters, without the brackets that patterns give a meaning."""
    return nodeid.rsplit("/", 1)[-1].replace("::", " ").replace("[", " ").replace("]", "")


def main(arguments: list[str]) -> int:
    """Run the tests with the stand-ins; return 1 unless exactly the tests of `FAILING` fail."""
    for package, *classes in (
        (manifold, LocallyLinearEmbedding, Isomap, SpectralEmbedding, ClassicalMDS),
        (decomposition, FactorAnalysis, KernelPCA),
    ):
        for one in classes:
            setattr(package, one.__name__, one)
    recorder = Recorder()
    folder = Path(sklearn.__file__).parent
    files = [str(folder / suite) for suite in SUITES]
    options = ["-c", os.devnull, "--rootdir", str(folder), "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    pytest.main([*options, *arguments, *files], plugins=[recorder])
    wrong = []
    reasons: dict[str, int] = dict.fromkeys(FAILING, 0)
    for test, is_passed in recorder.passed.items():
        rows = [row for row in FAILING if fnmatchcase(test, row)]
        reasons |= {row: reasons[row] + 1 for row in rows}
        if is_passed and rows:
            wrong.append(f"{test} passes: remove its row")
        elif not is_passed and not rows:
            wrong.append(f"{test} fails without a reason")
    wrong += [f"no test is {row}" for row, count in reasons.items() if not count]
    for row, count in reasons.items():
        say(f"{count:4d} fail: {row}: {FAILING[row]}")
    of_engine = [is_passed for test, is_passed in recorder.passed.items() if test in recorder.fitted]
    say(f"{sum(of_engine)} of {len(of_engine)} tests that fit a method of the engine pass.")
    say(f"{sum(recorder.passed.values()) - sum(of_engine)} further tests pass that use scikit-learn alone.")
    for line in wrong:
        say(line)
    return int(bool(wrong) or not of_engine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
