"""Addition of single points to an embedding by LLE with constant eigenvalues (`incremental_lle`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.weights.lle import normalised_precision

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEPS = 50
_SETTLED = 1e-8
_LEAST = 1e-6  # share of a step, halved until it descends


@dataclass(eq=False)
class Arrivals:
    """Points so far, with coordinates, neighbors, weights and residuals, in arrays with room for later points.

    Attributes
    ----------
    X : (N, d) float64
    Y : (N, p) float64
    nearest : (N, k) int32
    distances : (N, k) float64
        Nearest first.
    weights : (N, k) float64
    residuals : (N, p) float64
        y_i minus the weighted mean of its neighbors' coordinates.
    gram : (p, p) float64
        Y^T M Y, the sum of the residuals' outer products.
    eigenvalues : (p,) float64
    reg : float
    count : int
        Points so far.
    rewired : int
        Neighborhoods that a new point entered.
    unsettled : int
        Points whose search did not converge.

    """

    X: NDArray[np.float64]
    Y: NDArray[np.float64]
    nearest: NDArray[np.int32]
    distances: NDArray[np.float64]
    weights: NDArray[np.float64]
    residuals: NDArray[np.float64]
    gram: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    reg: float
    count: int
    rewired: int = 0
    unsettled: int = 0

    @classmethod
    def after(
        cls,
        X: NDArray[np.float64],
        Y: NDArray[np.float64],
        nearest: NDArray[np.int32],
        distances: NDArray[np.float64],
        eigenvalues: NDArray[np.float64],
        reg: float,
        additions: int,
    ) -> Self:
        """Return the state after the initial points X (n, d) at Y (n, p), with their neighbors (n, k)."""

        def room(width: int, kind: type = float) -> NDArray[Any]:
            return np.zeros((n + additions, width), kind)

        (n, d), p, k = X.shape, Y.shape[1], nearest.shape[1]
        weights = _weights(X[nearest] - X[:, None, :], reg)
        residuals = Y - np.einsum("nk,nkp->np", weights, Y[nearest])
        state = cls(
            X=room(d),
            Y=room(p),
            nearest=room(k, np.int32),
            distances=room(k),
            weights=room(k),
            residuals=room(p),
            gram=residuals.T @ residuals,
            eigenvalues=eigenvalues,
            reg=reg,
            count=n,
        )
        state.X[:n], state.Y[:n], state.nearest[:n], state.distances[:n] = X, Y, nearest, distances
        state.weights[:n], state.residuals[:n] = weights, residuals
        return state

    def add(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add a point x (d,), and return its coordinates (p,)."""
        n, k = self.count, self.nearest.shape[1]
        distances = np.linalg.norm(self.X[:n] - x, axis=1)
        near = np.argpartition(distances, k - 1)[:k]
        near = near[np.argsort(distances[near], kind="stable")]
        self.X[n], self.nearest[n], self.distances[n] = x, near, distances[near]
        self.weights[n] = _weights((self.X[near] - x)[None], self.reg)[0]
        entered = np.flatnonzero(distances < self.distances[:n, -1])
        self._rewire(entered, n, distances[entered])
        # The residuals of the point and of the neighborhoods it entered are linear in y: r = fixed + factor y.
        rows = np.append(entered, n)
        weights = self.weights[rows]
        is_new = self.nearest[rows] == n
        others = np.where(is_new[:, :, None], 0.0, self.Y[self.nearest[rows]])
        self.Y[n] = self.weights[n] @ self.Y[near]
        fixed = np.where((rows == n)[:, None], 0.0, self.Y[rows]) - np.einsum("rk,rkp->rp", weights, others)
        factor = np.where(rows == n, 1.0, -(weights * is_new).sum(axis=1))
        before = self.residuals[entered]
        rest = self.gram - before.T @ before
        self.count = n + 1
        self.Y[n] = self._settle(self.Y[n], rest, fixed, factor)
        self.residuals[rows] = fixed + factor[:, None] * self.Y[n]
        self.gram = rest + self.residuals[rows].T @ self.residuals[rows]
        return np.array(self.Y[n])

    def notes(self) -> tuple[Note, ...]:
        """Return a note on points whose search did not converge, if any."""
        if not self.unsettled:
            return ()
        message = (
            f"The coordinates of {self.unsettled} points did not converge within {_STEPS} steps; they are the best "
            "found. Raise initial, or take placement='weights'."
        )
        return (Note("places-unsettled", message),)

    def _rewire(self, entered: NDArray[np.intp], new: int, to_new: NDArray[np.float64]) -> None:
        """Replace the farthest neighbor of the entered neighborhoods by the new point, and update their weights."""
        if not len(entered):
            return
        self.rewired += len(entered)
        distances = np.concatenate([self.distances[entered, :-1], to_new[:, None]], axis=1)
        nearest = np.concatenate([self.nearest[entered, :-1], np.full((len(entered), 1), new, np.int32)], axis=1)
        order = np.argsort(distances, axis=1, kind="stable")
        self.distances[entered] = np.take_along_axis(distances, order, axis=1)
        self.nearest[entered] = np.take_along_axis(nearest, order, axis=1)
        differences = self.X[self.nearest[entered]] - self.X[entered, None, :]
        self.weights[entered] = _weights(differences, self.reg)

    def _settle(
        self,
        y: NDArray[np.float64],
        rest: NDArray[np.float64],
        fixed: NDArray[np.float64],
        factor: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Minimize |E(y)|_F^2, E = rest + R(y)^T R(y) - n diag(lambda), over y by Newton's steps.

        With g = R^T c, c the factor: half the gradient of |E|^2 / 2 is E g, half the Hessian |c|^2 E + |g|^2 I + g g^T.
        """
        target = self.count * np.diag(self.eigenvalues)
        size = float(factor @ factor)

        def misfit(y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            residual = fixed + factor[:, None] * y
            return rest + residual.T @ residual - target, factor @ residual

        error, pull = misfit(y)
        for _ in range(_STEPS):
            hessian = size * error + float(pull @ pull) * np.eye(len(y)) + np.outer(pull, pull)
            values, axes = np.linalg.eigh(hessian)
            scale = np.abs(values)  # descends along every axis also if the misfit is not convex
            if scale.max() == 0:
                return y
            step = -axes @ ((axes.T @ (error @ pull)) / np.maximum(scale, 1e-10 * scale.max()))
            if np.linalg.norm(step) <= _SETTLED * (1 + np.linalg.norm(y)):
                return y
            share, before = 1.0, float(np.vdot(error, error))
            while share > _LEAST:
                trial, trial_pull = misfit(y + share * step)
                if float(np.vdot(trial, trial)) < before:
                    break
                share /= 2
            else:
                return y  # a minimum to rounding
            y, error, pull = y + share * step, trial, trial_pull
        self.unsettled += 1
        return y


def _weights(differences: NDArray[np.float64], reg: float) -> NDArray[np.float64]:
    """Return LLE's weights (m, k) of differences (m, k, d) to the neighbors, for few points."""
    gram = differences @ differences.transpose(0, 2, 1)
    precision, _ = normalised_precision(gram, np.trace(gram, axis1=1, axis2=2), reg)
    solution = np.linalg.solve(precision, np.ones((*precision.shape[:2], 1)))[:, :, 0]
    return np.asarray(solution / solution.sum(axis=1, keepdims=True))
