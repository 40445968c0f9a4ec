"""`make -C qa sklearn`: run scikit-learn's own tests of embeddings, which its wheel contains, on the engine's methods.

A stand-in (see `qa.suites`) fits `glle_engine.estimator.Embedding`. Parameters that only choose how a result is
computed have no effect, so that many tests repeat one computation: the table counts the distinct ones. `FAILING` has
the reason of each failing test; a failure without a reason, and a reason without a failure, fail the run. Tests that
use no stand-in are counted apart.

Left out are `test_mds.py` (SMACOF; the engine's scaling is classical), `test_t_sne.py` (mostly the gradients inside
scikit-learn) and `test_pca.py` (mostly its choice of solvers).
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import sklearn
from sklearn import decomposition, manifold
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import pairwise_distances, pairwise_kernels, rbf_kernel
from sklearn.neighbors import NearestNeighbors

from docs.figures.methods.tables import between, put
from glle_engine.base.errors import GlleError
from glle_engine.estimator import Embedding
from qa.frame import say
from qa.suites.runs import Fits, Suite, alone, key_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUITES = {
    "`LocallyLinearEmbedding`": "manifold/tests/test_locally_linear.py",
    "`Isomap`": "manifold/tests/test_isomap.py",
    "`SpectralEmbedding`": "manifold/tests/test_spectral_embedding.py",
    "`ClassicalMDS`": "manifold/tests/test_classical_mds.py",
    "`FactorAnalysis`": "decomposition/tests/test_factor_analysis.py",
    "`KernelPCA`": "decomposition/tests/test_kernel_pca.py",
}
PAGE, MARKER = Path(__file__).parents[2] / "docs" / "reference" / "engine-api.md", "sklearn suite"
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
    "noise_variance_init",
    "copy",
    "copy_X",
}
LLE = {"standard": "lle", "modified": "modified-lle", "hessian": "hessian-lle", "ltsa": "ltsa"}

GRAPH = "Distances are given for all pairs, as a dense matrix; a sparse graph is given apart from the points."
FEW = "Its 3 points are too few for an embedding in 2 dimensions."
LINE = "Its points lie on a line: an embedding in 2 dimensions is an error, not a column of 0."
SYMMETRIC = "A kernel is symmetric: another matrix is an error."
DENSE = "Kernel PCA takes dense data."
# A pattern of tests (a file, a test, its parameters) and the reason why they fail.
FAILING = {
    "test_isomap.py test_pipeline_with_nearest_neighbors_transformer *": GRAPH,
    "test_isomap.py test_different_metric *<lambda>*": "Its function puts a point at a distance from itself.",
    "test_isomap.py test_isomap_fit_precomputed_radius_graph *": GRAPH,
    "test_isomap.py test_isomap_fitted_attributes_dtype *": FEW,
    "test_isomap.py test_isomap_dtype_equivalence": FEW,
    "test_isomap.py test_multiple_connected_components": LINE,
    "test_isomap.py test_multiple_connected_components_metric_precomputed *": "A graph has at least 2 neighbors.",
    "test_spectral_embedding.py test_precomputed_nearest_neighbors_filtering": (
        "Given affinities whose graph falls into parts are an error."
    ),
    "test_factor_analysis.py test_factor_analysis *": (
        "The test passes up to where it asks for 0 factors, for as many factors as features, and for `rotation`, which"
        " the method lacks."
    ),
    "test_kernel_pca.py test_kernel_pca_invalid_parameters": SYMMETRIC,
    "test_kernel_pca.py test_kernel_pca_precomputed_non_symmetric *": SYMMETRIC,
    "test_kernel_pca.py test_kernel_pca_sparse *": DENSE,
    "test_kernel_pca.py test_remove_zero_eig": "Equal points are an error, not an embedding without columns.",
}
# Tests that are skipped, because they test how scikit-learn computes, and not what.
SKIPPED = {
    "test_spectral_embedding.py test_error_pyamg_not_available": "The choice of an eigensolver, which is the engine's.",
    "test_kernel_pca.py test_precomputed_kernel_not_psd randomized": "The limits of an eigensolver of scikit-learn.",
}
# The engine's errors in the words of scikit-learn, which its tests compare.
WORDS = {
    "would change nothing with radius": "Both n_neighbors and radius are provided",
    "differs from its mirror image": "Array must be symmetric",
    "A matrix of all pairs is square": "array must be 2-dimensional and square",
}
WARNINGS = {"bridged": "The number of connected components of the graph is above 1"}


class StandIn(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, Fits):  # type: ignore[misc]  # untyped
    """Base of the stand-ins; each subclass has the `__init__` of the class that it replaces."""

    def chosen(self, X: Any, parameters: dict[str, Any]) -> tuple[str, Any]:
        """Return the engine's method and the data for it; change `parameters` in place to those of the engine."""
        raise NotImplementedError

    def fitted(self, name: str, data: Any, parameters: dict[str, Any]) -> Embedding:
        """Fit the engine's method with the parameters that are not None."""
        return Embedding(name, **{word: value for word, value in parameters.items() if value is not None}).fit(data)

    def sized(self, places: NDArray[Any]) -> NDArray[Any]:
        """Return the engine's coordinates (m, p) with the scale that scikit-learn gives them."""
        return places

    def fit(self, X: Any, y: object = None) -> Self:
        """Fit by the engine, and raise its errors in the words of scikit-learn, which the tests compare."""
        del y
        Fits.used.add("refused")  # counts where the engine, or the choice of the method, raises an error
        options = {name: value for name, value in self.get_params().items() if name not in ALGORITHM}
        name, data = self.chosen(X, options)
        Fits.used.add(key_of(name, data, options))
        try:
            self.model_ = self.fitted(name, data, options)
        except GlleError as error:
            words = next((words for text, words in WORDS.items() if text in error.message), None)
            if words is None:
                raise
            raise ValueError(f"{words}: {error}") from error
        for note in self.model_.result_.notes:
            if note.code in WARNINGS:
                warnings.warn(f"{WARNINGS[note.code]}: {note.message}", UserWarning, stacklevel=2)
        Fits.used.discard("refused")
        self.embedding_ = self.sized(self.placed(self.model_.embedding_))
        self._n_features_out = self.embedding_.shape[1]
        return self

    def fit_transform(self, X: Any, y: object = None) -> NDArray[Any]:
        """Fit, and return the embedding."""
        return np.asarray(self.fit(X, y).embedding_)

    def transform(self, X: Any) -> NDArray[Any]:
        """Return coordinates of new points by the fitted method, in scikit-learn's scale."""
        return self.sized(self.placed(self.model_.transform(X)))


class LocallyLinearEmbedding(StandIn):
    """LLE and its variants; scikit-learn's columns have length 1, the engine's the root of n."""

    __init__ = manifold.LocallyLinearEmbedding.__init__

    def chosen(self, X: Any, parameters: dict[str, Any]) -> tuple[str, Any]:
        """Choose the engine's method by the argument `method`; only LLE itself has a regularization."""
        name = LLE[parameters.pop("method")]
        if name != "lle":
            del parameters["reg"]
        return name, np.asarray(X)

    def sized(self, places: NDArray[Any]) -> NDArray[Any]:
        """Return the engine's coordinates divided by the root of n, so that columns have length 1."""
        return np.asarray(places / places.dtype.type(np.sqrt(len(self.model_.embedding_))))

    @property
    def reconstruction_error_(self) -> float:
        """The sum of the eigenvalues, as scikit-learn defines the error."""
        return float(np.sum(np.asarray(self.model_.result_.eigenvalues)))


class Isomap(StandIn):
    """Isomap; metrics that the engine lacks are given as a matrix of distances."""

    __init__ = manifold.Isomap.__init__

    def chosen(self, X: Any, parameters: dict[str, Any]) -> tuple[str, Any]:
        """Return the engine's Isomap for the argument `metric`; an infinite radius becomes all points as neighbors."""
        if parameters["radius"] == np.inf:  # of all points; the engine's radius is finite
            parameters |= {"radius": None, "n_neighbors": len(X) - 1}
        if (p := parameters.pop("p")) == 2 and parameters["metric"] == "minkowski":
            parameters["metric"] = "euclidean"
        if parameters["metric"] not in {"euclidean", "precomputed"}:
            options = {"p": p} if parameters["metric"] == "minkowski" else {}
            X, parameters["metric"] = pairwise_distances(X, metric=parameters["metric"], **options), "precomputed"
        return "isomap", X

    def reconstruction_error(self) -> float:
        """Return how badly the embedding reproduces the kernel of the geodesic distances."""
        return float(self.model_.result_.figures["reconstruction_error"])

    @property
    def nbrs_(self) -> SimpleNamespace:
        """An object whose `n_neighbors` is the number of neighbors of the fit, which a test reads."""
        return SimpleNamespace(n_neighbors=self.model_.get_params()["n_neighbors"])


class SpectralEmbedding(StandIn):
    """Laplacian eigenmaps.

    The affinity "rbf" becomes heat weights between all pairs of points. A function, or a sparse graph of distances,
    becomes a matrix of affinities.
    """

    __init__ = manifold.SpectralEmbedding.__init__

    def chosen(self, X: Any, parameters: dict[str, Any]) -> tuple[str, Any]:
        """Return the method for the argument `affinity`, and keep the affinities as an attribute for the tests."""
        affinity, gamma, k = parameters.pop("affinity"), parameters.pop("gamma"), parameters.pop("n_neighbors")
        n, d = X.shape
        if affinity == "rbf":
            gamma = gamma or 1 / d
            self.affinity_matrix_ = rbf_kernel(X, gamma=gamma)
            parameters |= {"weights": "heat", "epsilon": 1 / gamma, "n_neighbors": n - 1}
        elif affinity == "nearest_neighbors":
            parameters |= {"weights": "simple", "n_neighbors": k or max(n // 10, 1)}
        else:
            parameters["weights"] = "precomputed"
            if affinity == "precomputed_nearest_neighbors":
                graph = NearestNeighbors(n_neighbors=k, metric="precomputed").fit(X).kneighbors_graph(X)
                X = (graph + graph.T) / 2
            elif callable(affinity):
                X = affinity(X)
            self.affinity_matrix_ = X
        return "laplacian-eigenmaps", X


class ClassicalMDS(StandIn):
    """Classical scaling; distances other than Euclidean are given as a matrix."""

    __init__ = manifold.ClassicalMDS.__init__

    def chosen(self, X: Any, parameters: dict[str, Any]) -> tuple[str, Any]:
        """Return the engine's classical scaling, with the dissimilarity that the argument `metric` names."""
        metric, options = parameters.pop("metric"), parameters.pop("metric_params") or {}
        if metric not in {"euclidean", "precomputed"}:
            X, metric = pairwise_distances(X, metric=metric, **options), "precomputed"
        parameters["dissimilarity"] = metric
        return "mds", X

    @property
    def eigenvalues_(self) -> NDArray[Any]:
        """The eigenvalues of the engine's classical scaling."""
        return np.asarray(self.model_.result_.eigenvalues)


class FactorAnalysis(StandIn):
    """Stand-in for factor analysis, with the attributes of the fitted model that the tests read."""

    __init__ = decomposition.FactorAnalysis.__init__

    def chosen(self, X: Any, parameters: dict[str, Any]) -> tuple[str, Any]:
        """Return the engine's factor analysis, with as many factors as features by default."""
        parameters["n_components"] = X.shape[1] if parameters["n_components"] is None else parameters["n_components"]
        parameters |= {"tol": self.tol / len(X), "max_iter": self.max_iter}
        return "factor-analysis", X

    @property
    def _map(self) -> Any:
        return self.model_.result_.map

    @property
    def loglike_(self) -> list[float]:
        """The log-likelihood after the last iteration, in a list."""
        return [self.model_.result_.figures["log_likelihood"]]

    @property
    def components_(self) -> NDArray[Any]:
        """The loadings (p, d)."""
        return np.asarray(self._map.loadings.T)

    @property
    def noise_variance_(self) -> NDArray[Any]:
        """The variances of the noise (d,)."""
        return np.asarray(self._map.noise_variances)

    def score_samples(self, X: Any) -> NDArray[Any]:
        """Return the log-likelihood of each point."""
        return np.asarray(self._map.log_likelihoods(X))

    def score(self, X: Any) -> float:
        """Return the mean log-likelihood."""
        return float(self.score_samples(X).mean())

    def get_covariance(self) -> NDArray[Any]:
        """Return the covariance of the model."""
        return np.asarray(self._map.covariance)

    def get_precision(self) -> NDArray[Any]:
        """Return the inverse of the covariance."""
        return np.linalg.inv(self.get_covariance())


class KernelPCA(StandIn):
    """Kernel PCA; if there are fewer components than requested, columns of 0 are added."""

    __init__ = decomposition.KernelPCA.__init__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def chosen(self, X: Any, parameters: dict[str, Any]) -> tuple[str, Any]:
        """Return the engine's kernel PCA for the argument `kernel`; a function becomes a kernel matrix."""
        X = np.asarray(X) if isinstance(X, list) else X
        self.X_fit_, kernel = X, parameters["kernel"]
        gamma, degree, offset = parameters.pop("gamma"), parameters.pop("degree"), parameters.pop("coef0")
        if callable(kernel):
            parameters["kernel"], X = "precomputed", pairwise_kernels(X, metric=kernel)
        elif kernel in ("rbf", "poly"):
            self.gamma_ = parameters["gamma"] = gamma or 1 / X.shape[1]
        if kernel == "poly":
            parameters |= {"kernel": "polynomial", "degree": degree, "offset": float(offset)}
        for name in ("alpha", "remove_zero_eig", "kernel_params", "fit_inverse_transform"):
            del parameters[name]
        parameters["n_components"] = parameters["n_components"] or X.shape[0] - 1
        return "kernel-pca", X

    def fitted(self, name: str, data: Any, parameters: dict[str, Any]) -> Embedding:
        """Fit; if the data have fewer components than requested, fit as many as there are.

        Raises ValueError if the matrix is not a kernel.
        """
        try:
            return super().fitted(name, data, parameters)
        except GlleError as error:
            if not (rank := error.details.get("most")):
                raise
            model = super().fitted(name, data, parameters | {"n_components": rank})
            for note in model.result_.notes:
                if note.code == "not-a-kernel":
                    raise ValueError(f"There are significant negative eigenvalues: {note.message}") from error
            return model

    def sized(self, places: NDArray[Any]) -> NDArray[Any]:
        """Return the coordinates, with columns of 0 for requested components that do not exist."""
        missing = 0 if self.remove_zero_eig else (self.n_components or 0) - places.shape[1]
        return np.pad(places, ((0, 0), (0, max(0, missing))))

    @property
    def eigenvalues_(self) -> NDArray[Any]:
        """The eigenvalues of the centered kernel."""
        values = np.asarray(self.model_.result_.eigenvalues) * len(self.X_fit_)
        return np.asarray(self.sized(values[None])[0])

    def transform(self, X: Any) -> NDArray[Any]:
        """Place new points; a kernel that is a function is evaluated between the points and those of the fit."""
        return super().transform(pairwise_kernels(X, self.X_fit_, metric=self.kernel) if callable(self.kernel) else X)

    def inverse_transform(self, X: Any) -> NDArray[Any]:
        """Return points with d features for places in the map."""
        if not self.fit_inverse_transform:
            raise NotFittedError("The way back was not asked for.")
        places = np.asarray(X)[:, : self.model_.embedding_.shape[1]]
        return np.asarray(self.model_.result_.inverse_transform(places, ridge=self.alpha))


def main(arguments: list[str]) -> int:
    """Run the tests with the stand-ins; return 1 unless exactly the tests of `FAILING` fail.

    `--write` puts the table on its page, which has to be the same without it; pytest gets the other arguments.
    """
    for package, *classes in (
        (manifold, LocallyLinearEmbedding, Isomap, SpectralEmbedding, ClassicalMDS),
        (decomposition, FactorAnalysis, KernelPCA),
    ):
        for one in classes:
            setattr(package, one.__name__, one)
    os.environ["SKLEARN_RUN_FLOAT32_TESTS"] = "1"
    words = [word for word in arguments if word != "--write"]
    suite = Suite(Path(sklearn.__file__).parent, SUITES, FAILING, SKIPPED)
    recorder, at_random = suite.run(words), suite.run(words, np.random.default_rng(0))
    outcomes = suite.table(recorder, at_random)
    say(outcomes)
    say(f"{alone(recorder)} further tests pass that use scikit-learn alone.")
    wrong = suite.flaws(recorder)
    if "--write" in arguments and not wrong:
        put(PAGE, MARKER, outcomes)
    elif between(PAGE.read_text(encoding="utf-8"), MARKER) != outcomes:
        wrong.append(f"{PAGE} has another table: run with --write")
    for line in wrong:
        say(line)
    return int(bool(wrong) or not recorder.fitted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
