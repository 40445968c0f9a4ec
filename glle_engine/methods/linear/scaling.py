r"""Classical multidimensional scaling and kernel PCA: points from their inner products.

Classical scaling finds points whose inner products follow from the dissimilarities. With :math:`J = I - 1 1^T / n` and
the matrix :math:`D^{(2)}` of squared dissimilarities, :math:`B = -\frac12 J D^{(2)} J = U \Lambda U^T` and
:math:`Y = U_p \Lambda_p^{1/2}` (Torgerson 1952; Gower 1966), which minimizes the strain :math:`\|B - Y Y^T\|_F`. For
Euclidean distances of points X, :math:`B = X X^T` with X centered. Y is then the same as by PCA, and no distance needs
to be computed.

Kernel PCA finds the principal components of the points' images under the feature map of a kernel.

With :math:`K_{ij} = k(x_i, x_j)` and :math:`J = I - 1 1^T / n`, the eigenvectors of :math:`J K J = U \Lambda U^T` give
:math:`Y = U_p \Lambda_p^{1/2}`. The covariance of the images has the eigenvalues :math:`\Lambda / n` (Schoelkopf, Smola
and Mueller 1998). The linear kernel gives PCA. For a new point x, let :math:`c_j = k(x, x_j)`, centered by the means of
K like the rows of K. Its position is :math:`y = c^T U_p \Lambda_p^{-1/2}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.linalg import solve

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError, OutOfRangeError
from glle_engine.base.progress import block_size, blocks
from glle_engine.base.space import Space
from glle_engine.base.texts import Note, Way
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import leading_eigenpairs, least_eigenvalue
from glle_engine.graph.relations import DISTANCE_ROUNDING, checked_distances, symmetric
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.methods.maps import Map
from glle_engine.methods.parameters import MethodSpec, choice, integer, number, of_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

MAX_NEGATIVE_SHARE = 1e-6  # distances are not Euclidean if a negative eigenvalue exceeds this share of the largest
MIN_EIGENVALUE_SHARE = 1e-12  # smaller eigenvalues, relative to the largest, count as 0


@dataclass(frozen=True, kw_only=True)
class MdsSpec(MethodSpec):
    """Parameters of classical MDS."""

    dissimilarity: str = choice(
        "euclidean",
        "Euclidean distances of the points, or precomputed: X is then the symmetric n x n matrix of dissimilarities, "
        "with a diagonal of 0.",
        "euclidean",
        "precomputed",
    )


def double_center(matrix: NDArray[np.float64]) -> None:
    """Center a symmetric matrix K (n, n) in place: replace it by J K J with J = I - 1 1^T / n."""
    means = matrix.mean(axis=0)
    matrix -= means
    matrix -= (means - means.mean())[:, None]


@Method(
    spec=MdsSpec,
    title="Classical multidimensional scaling",
    about="Points whose inner products best fit the dissimilarities, by eigenvectors of -J D^2 J / 2.",
    source="Torgerson 1952; Gower 1966",
    doubles=lambda spec, n: n * n if spec.dissimilarity == "precomputed" else 0,
    linear=True,
    growth="as PCA from points; n^2 from dissimilarities",
)
def mds(X: NDArray[np.float64], spec: MdsSpec, on_progress: OnProgress) -> Embedding:
    """Embed points by PCA, which is classical scaling of their distances, or embed a matrix of dissimilarities."""
    if spec.dissimilarity == "precomputed":
        return scaling_of(checked_distances(X), spec.n_components, on_progress)
    axes = principal_axes(X, spec.n_components, on_progress)
    centered = X - X.mean(axis=0)
    centered /= np.abs(centered).max()  # so that fourth powers stay in the range of floating-point numbers
    moment = centered.T @ centered if len(X) >= X.shape[1] else centered @ centered.T
    shares = axes.values * (float(np.trace(moment)) / axes.total)
    figures = {"strain": _strain(float(np.linalg.norm(moment)), shares)}
    return Embedding(axes.scores, axes.values * len(X), figures, (*axes.notes(),))


def scaling_of(D: NDArray[np.float64], p: int, on_progress: OnProgress) -> Embedding:
    """Embed n points from their dissimilarities by classical scaling.

    Parameters
    ----------
    D : (n, n) float64
        Exactly symmetric, not negative, with a diagonal of 0.
    p : int
        Dimension of the embedding.
    on_progress

    Returns
    -------
    Embedding
        With the leading eigenvalues of the inner products B = -J D^2 J / 2. The figures of the embedding are the
        strain, sqrt(||B - Y Y^T||_F^2 / ||B||_F^2), and the least eigenvalue of B.

    Raises
    ------
    DegenerateDataError
        If fewer than p eigenvalues are positive.

    """
    on_progress(0, 1, "inner products")
    unit = float(D.max())  # keeps squares in the range of floating-point numbers
    B = -0.5 * (D / unit) ** 2
    double_center(B)
    norm = float(np.linalg.norm(B))
    values, vectors = leading_eigenpairs(B, p, on_progress)
    smallest = least_eigenvalue(B, norm, on_progress)
    if values[-1] <= DISTANCE_ROUNDING**2 * norm:
        rank = int((values > DISTANCE_ROUNDING**2 * norm).sum())
        raise DegenerateDataError(
            f"The dissimilarities determine only {rank} dimension(s) (positive eigenvalues of their inner products), "
            f"fewer than {Way('n_components', p)}.",
            remedy=f"Give {Way('n_components')} of at most {rank}."
            if rank
            else "Check that the data are dissimilarities, and that some are positive.",
            details={"most": rank},
        )
    figures = {"strain": _strain(norm, values), "least_eigenvalue": unit**2 * smallest}
    notes: tuple[Note, ...] = ()
    if smallest < -MAX_NEGATIVE_SHARE * values[0]:
        message = (
            f"The least eigenvalue is {-smallest / values[0]:.2g} of the largest, negative: no points of any dimension"
        )
        notes = (
            Note(
                "not-euclidean",
                f"{message} have these dissimilarities. The embedding keeps the part with positive eigenvalues. If "
                "this share is large, add a constant to all dissimilarities, or take their square roots.",
            ),
        )
    return Embedding(unit * sign_convention(vectors * np.sqrt(values)), unit**2 * values, figures, notes)


def _strain(norm: float, values: NDArray[np.float64]) -> float:
    """Return the strain sqrt(||B - Y Y^T||_F^2 / ||B||_F^2) from the norm ||B||_F and the eigenvalues of Y Y^T (p,)."""
    return float(np.sqrt(max(1 - float(((values / norm) ** 2).sum()), 0.0)))


@dataclass(frozen=True, kw_only=True)
class KernelPcaSpec(MethodSpec):
    """Parameters of kernel PCA."""

    kernel: str = choice(
        "rbf",
        "rbf is exp(-gamma |x - y|^2), polynomial (gamma <x, y> + offset)^degree, cosine <x, y> / (|x| |y|), "
        "linear <x, y>; precomputed takes the symmetric n x n matrix of any other kernel as the data.",
        "rbf",
        "polynomial",
        "cosine",
        "linear",
        "precomputed",
    )
    gamma: float | str = number(
        "auto",
        "gamma of rbf and polynomial, in 1 / squared units of the data; auto is 1 / the sum of the features' "
        "variances, with which the kernel does not depend on the unit.",
        above=0,
        words=("auto",),
    )
    degree: int = integer(3, "Degree of the polynomial kernel.", minimum=1)
    offset: float = number(1.0, "Number that the polynomial kernel adds to the inner product.", minimum=0)

    def check_together(self) -> None:
        """Raise `InvalidParameterError` if gamma, degree or offset is given for a kernel that does not have it."""
        unused = {"polynomial": (), "rbf": ("degree", "offset")}.get(self.kernel, ("gamma", "degree", "offset"))
        self.refuse_unused("kernel", *unused)

    def require_possible(self, n: int, d: int) -> None:
        """Raise `InvalidParameterError` if n_components exceeds the dimensions that the images of n points can span.

        These are min(n - 1, d) dimensions for the kernels linear and cosine, and n - 1 for the others.
        """
        self.require_rank(n, d if self.kernel in {"linear", "cosine"} else n)


def kernel_matrix(
    X: NDArray[np.float64], spec: KernelPcaSpec, gamma: float, on_progress: OnProgress
) -> NDArray[np.float64]:
    """Return the kernel matrix k(x_i, x_j) (n, n) of points X that `prepare` has made ready for the kernel.

    Raises
    ------
    OutOfRangeError
        If a power leaves the range of floating-point numbers.

    """
    n = len(X)
    kernel = kernel_to(X, spec, gamma)
    K = np.empty((n, n))
    with np.errstate(over="ignore"):
        for rows in blocks(n, block_size(n), "kernel", on_progress):
            K[rows] = kernel(X[rows])
    if not np.isfinite(K.sum()):
        raise OutOfRangeError(
            f"The kernel ({Way('kernel', spec.kernel)}) has values beyond the range of floating-point numbers.",
            remedy="Lower degree or gamma, or divide the data by their largest absolute value.",
        )
    return K


def prepare(X: NDArray[np.float64], spec: KernelPcaSpec, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the points (m, d) as the kernel takes them: minus `mean` (linear), or of length one (cosine).

    Other kernels take the points unchanged. The kernel matrix is centered later in any case, but if the mean is large,
    centering the points of the linear kernel first avoids rounding errors.

    Raises
    ------
    DegenerateDataError
        If a point is 0, which has no cosine.

    """
    if spec.kernel == "linear":
        return X - mean
    return Space("cosine").points(X) if spec.kernel == "cosine" else X


def kernel_to(
    X: NDArray[np.float64], spec: KernelPcaSpec, gamma: float
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return the function from points (m, d) to their kernel values (m, n) with the rows of X (n, d).

    `prepare` must have made both the points and X ready for the kernel.
    """
    from scipy.spatial.distance import cdist  # noqa: PLC0415 -- slow to import; the API does not need it

    kernels: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
        "rbf": lambda rows: np.exp(-gamma * cdist(rows, X, "sqeuclidean")),
        "polynomial": lambda rows: np.asarray((gamma * (rows @ X.T) + spec.offset) ** spec.degree),
        "cosine": lambda rows: rows @ X.T,
        "linear": lambda rows: rows @ X.T,
        "precomputed": lambda rows: rows,
    }
    return kernels[spec.kernel]


@dataclass(frozen=True, eq=False)
class KernelMap(Map):
    """Map of kernel PCA: projects the images of new points in the feature space onto the principal components.

    Attributes
    ----------
    X : (n, d) float64
        The training points, as `prepare` returns them.
    mean : (d,) float64
        Mean of the training points.
    spec : KernelPcaSpec
    gamma : float
        The gamma of the kernel, with "auto" replaced by its value.
    means : (n,) float64
        Means of the columns of K, the kernel matrix (n, n) of the training points.
    coefficients : (n, p) float64
        The leading eigenvectors of the centered K, divided by the roots of their eigenvalues.

    """

    X: NDArray[np.float64]
    mean: NDArray[np.float64]
    spec: KernelPcaSpec
    gamma: float
    means: NDArray[np.float64]
    coefficients: NDArray[np.float64]

    @classmethod
    def restore(
        cls,
        data: Callable[[], NDArray[np.float64]],
        spec: KernelPcaSpec,
        embedding: Embedding,
        arrays: dict[str, NDArray[np.float64]],
    ) -> Self:
        """Rebuild the map from the data, the embedding and the stored `arrays` of the map, for `Method.restore`."""
        assert embedding.eigenvalues is not None
        X, gamma = data(), embedding.figures.get("gamma", 0.0)
        mean = X.mean(axis=0)
        coefficients = embedding.Y / (len(X) * embedding.eigenvalues)
        return cls(prepare(X, spec, mean), mean, spec, gamma, arrays["kernel_means"], coefficients)

    @property
    def n_features(self) -> int:
        """The number of features of a point, d."""
        return int(self.X.shape[1])

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The arrays to store: the means (n,) of the columns of the kernel matrix, named "kernel_means"."""
        return {"kernel_means": self.means}

    def _row_entries(self) -> int:
        return int(max(self.X.shape))

    def _place(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        images = kernel_to(self.X, self.spec, self.gamma)(prepare(points, self.spec, self.mean)) - self.means
        images -= images.mean(axis=1)[:, None]
        return np.asarray(images @ self.coefficients)

    def inverse(self, places: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
        """Return points (m, d) for positions `places` (m, p), by kernel ridge regression (Bakir et al. 2004).

        The training points are regressed on their positions in the embedding, with the kernel of the method. `ridge` is
        the ridge of this regression, relative to the mean diagonal entry of the kernel matrix of the training points'
        positions. Raises `InvalidParameterError` for a precomputed kernel.
        """
        if self.spec.precomputed:
            raise InvalidParameterError(
                "With a precomputed kernel, positions cannot be mapped back to data.",
                remedy=f"Use another kernel, such as {Way('kernel', 'rbf')}.",
            )
        Y = self.coefficients / (self.coefficients**2).sum(axis=0)
        center = self.X.mean(axis=0)
        kernel = kernel_to(Y, self.spec, self.gamma)
        K = kernel(Y)
        K[np.diag_indices_from(K)] += ridge * float(np.trace(K)) / len(K)
        points = kernel(places) @ solve(K, self.X - center, assume_a="pos") + center
        return np.asarray(points + self.mean if self.spec.kernel == "linear" else points)


@Method(
    spec=KernelPcaSpec,
    title="Kernel PCA",
    about="Principal components of the points' images under the feature map of a kernel, from the centered kernel "
    "matrix.",
    source="Schoelkopf, Smola and Mueller 1998, Neural Computation 10",
    doubles=of_pairs(2),
    growth="n^2; n^3 where the kernel's spectrum is flat",
    restore=KernelMap.restore,
)
def kernel_pca(X: NDArray[np.float64], spec: KernelPcaSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the leading principal components in the feature space of the kernel."""
    n, p = len(X), spec.n_components
    mean = X.mean(axis=0)
    gamma = 1 / float(X.var(axis=0).sum()) if spec.gamma == "auto" else float(spec.gamma)
    X = symmetric(X, "kernel value") if spec.precomputed else prepare(X, spec, mean)
    K = kernel_matrix(X, spec, gamma, on_progress)
    means = K.mean(axis=0)
    double_center(K)
    total = float(np.trace(K))
    values, vectors = leading_eigenpairs(K, p, on_progress)
    if values[-1] <= MIN_EIGENVALUE_SHARE * max(values[0], total):
        rank = int((values > MIN_EIGENVALUE_SHARE * max(values[0], total)).sum())
        raise DegenerateDataError(
            f"The images of the points under this kernel span {rank} dimensions, fewer than {Way('n_components', p)}.",
            remedy=f"Give {Way('n_components')} of at most {rank}."
            if rank
            else "Raise gamma: all points are equal for this kernel.",
            details={"most": rank},
        )
    notes: tuple[Note, ...] = ()
    smallest = least_eigenvalue(K, float(np.linalg.norm(K)), on_progress) if spec.precomputed else 0.0
    if smallest < -MAX_NEGATIVE_SHARE * values[0]:
        message = f"The least eigenvalue is {-smallest / values[0]:.2g} of the largest, negative: this is not a kernel."
        notes = (Note("not-a-kernel", f"{message} The embedding keeps the part with positive eigenvalues."),)
    figures = {"explained_variance": float(values.sum()) / max(total, float(values.sum()))}
    if spec.kernel in {"rbf", "polynomial"}:
        figures["gamma"] = gamma
    Y = sign_convention(vectors * np.sqrt(values))
    return Embedding(Y, values / n, figures, notes, map=KernelMap(X, mean, spec, gamma, means, Y / values))
