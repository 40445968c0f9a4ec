"""What is to be fitted: the parameters of a posterior, checked against each other."""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any, Literal, Self, get_args

from glle_engine.base.errors import InvalidParameterError

Method = Literal["em", "direct"]
Variant = Literal["constrained", "published"]
Variance = Literal["auto", "dirichlet", "ml"]
Mean = Literal["lle", "derived"]
Covariance = Literal["spherical", "full", "full-corrected"]
Disconnected = Literal["refuse", "bridge"]
Noise = Literal["isotropic", "tangent"]
Adaptation = Literal["fixed", "adaptive"]
Search = Literal["exact", "approximate"]
Source = Literal["posterior", "prior"]
Align = Literal["procrustes", "none"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "method": get_args(Method),
    "variant": get_args(Variant),
    "variance": get_args(Variance),
    "mean": get_args(Mean),
    "covariance": get_args(Covariance),
    "disconnected": get_args(Disconnected),
    "noise": get_args(Noise),
    "neighborhoods": get_args(Adaptation),
    "search": get_args(Search),
    "source": get_args(Source),
    "align": get_args(Align),
}


def check_choice(name: str, value: object) -> None:
    """Raise `InvalidParameterError` unless `value` is one of the choices of parameter `name`."""
    choices = _CHOICES[name]
    if value not in choices:
        raise InvalidParameterError(f"{name}={value!r} is not known.", remedy=f"Choose one of {', '.join(choices)}.")


def check_integer(name: str, value: object, at_least: int, *, counter: bool = False) -> int:
    """Return `value`, an integer of Python or numpy, as an int.

    Raises
    ------
    InvalidParameterError
        For another type, a boolean included, for a value below `at_least`, and for a `counter` of 2^64 or more.

    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]  # a TypeError
    except TypeError:
        number = None
    if number is None or number < at_least or (counter and number >= 2**64):
        domain = f"an integer of at least {at_least}" + (" and below 2^64" if counter else "")
        raise InvalidParameterError(f"{name}={value!r} is not {domain}.", remedy=f"Give {name} as {domain}.")
    return number


def check_positive(name: str, value: object, *, zero: bool = False) -> float:
    """Return `value`, a real number of Python or numpy, as a float.

    Raises
    ------
    InvalidParameterError
        For another type, a boolean included, and for a number that is infinite, NaN, negative, or zero unless `zero`.

    """
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        domain = "a finite number that is not negative" if zero else "a finite positive number"
        raise InvalidParameterError(f"{name}={value!r} is not {domain}.", remedy=f"Give {name} as {domain}.")
    return number


@dataclass(frozen=True, kw_only=True)
class FitSpec:
    """Parameters of a posterior over reconstruction weights.

    Equal fits have equal specifications: an option that changes nothing beside the others takes its default. These are
    `max_iter` and `tol` outside the published em, and the variance "dirichlet" beside tangent noise ("auto" is the
    same). Other idle options raise an error.

    Parameters
    ----------
    method
        ``"em"``: the posterior of the weights given the data (GLLE Algorithm 1). ``"direct"``: given
        the data and the LLE embedding (GLLE Algorithm 2).
    variant
        ``"constrained"`` keeps 1^T w = 1 (GLLE Eq. 7) and models reconstruction noise. ``"published"``
        is the equations as printed; `diagnostics` says what they do on the data.
    n_neighbors
        k >= 2, the number of neighbours of a point.
    n_components
        p >= 1, the dimension of the embedding.
    reg
        Ratio of noise to prior variance: the ridge is lambda_i = reg * tr(G_i) (GLLE Eq. 9). Its
        default, 1e-3, is the field's convention.
    variance
        The noise variance s_i^2 of the constrained variant: ``"dirichlet"``, ``"ml"``, or ``"auto"``,
        which is dirichlet if the residuals lie in fewer than k - 1 directions (the figure
        `residual_dimension`) or `noise` is tangent, and ml otherwise.
    mean
        Mean of the direct posterior: ``"lle"`` (Eq. 36) or ``"derived"`` (Eq. 35).
    covariance
        M-step of the published em: ``"spherical"`` (Eq. 29), ``"full"`` (the zero of Eq. 26) or
        ``"full-corrected"`` (the maximiser of Eq. 23, with the second moments that Eq. 22 lacks).
    max_iter, tol
        The published em stops after `max_iter` >= 1 iterations, or earlier if no covariance changes by more than
        `tol` >= 0, relatively. tol=0 asks for exactly `max_iter` iterations.
    disconnected
        What to do with a graph of several components, or of several closed classes: ``"refuse"`` the
        former and note the latter, or ``"bridge"`` them by their shortest edges (`glle_engine.graph.bridging`);
        `glle_engine.posterior.fit.fit_components` fits each component by itself.
    noise
        Reconstruction noise of the constrained variant: ``"isotropic"``, whose mean is LLE, or
        ``"tangent"``, which tells directions along the sheet from those off it (`glle_engine.weights.tangent`): the
        choice for noisy data, few neighbours and many features.
    neighborhoods
        ``"fixed"``: all k candidates are neighbours. ``"adaptive"``: of the k candidates those that lie near the
        point's tangent plane (`glle_engine.graph.adaptive`), for data whose turns come close to each other; with the
        constrained variant and isotropic noise.
    search
        ``"exact"``, or ``"approximate"``: neighbours by a graph of small worlds (`glle_engine.graph.hnsw`; needs
        faiss, the extra `ann`), for many points of many features. The diagnostics say how many were found.

    Raises
    ------
    InvalidParameterError
        For a value outside its domain, or an option that has no meaning beside the others.

    """

    method: Method = "em"
    variant: Variant = "constrained"
    n_neighbors: int = 10
    n_components: int = 2
    reg: float = 1e-3
    variance: Variance = "auto"
    mean: Mean = "lle"
    covariance: Covariance = "spherical"
    max_iter: int = 50
    tol: float = 1e-6
    disconnected: Disconnected = "refuse"
    noise: Noise = "isotropic"
    neighborhoods: Adaptation = "fixed"
    search: Search = "exact"

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in _CHOICES:
                check_choice(field.name, getattr(self, field.name))
        checked = {
            "n_neighbors": check_integer("n_neighbors", self.n_neighbors, 2),
            "n_components": check_integer("n_components", self.n_components, 1),
            "max_iter": check_integer("max_iter", self.max_iter, 1),
            "reg": check_positive("reg", self.reg),
            "tol": check_positive("tol", self.tol, zero=True),
        }
        self._check_together()
        for name, value in {**checked, **self._idle()}.items():
            object.__setattr__(self, name, value)

    def _check_together(self) -> None:
        """Refuse an option that has no meaning beside the others."""
        constrained = self.variant == "constrained"
        adaptive = self.neighborhoods == "adaptive"
        for asked, possible, option, needed in (
            (self.mean == "derived", self.method == "direct", "mean='derived' (Eq. 35)", "method='direct'"),
            (
                self.covariance != "spherical",
                self.method == "em" and not constrained,
                f"covariance={self.covariance!r}",
                "method='em' and variant='published'",
            ),
            (self.noise == "tangent", constrained, "noise='tangent'", "variant='constrained'"),
            (adaptive, constrained, "neighborhoods='adaptive'", "variant='constrained'"),
            (adaptive, self.noise == "isotropic", "neighborhoods='adaptive'", "noise='isotropic'"),
            (self.variance != "auto", constrained, f"variance={self.variance!r}", "variant='constrained'"),
        ):
            if asked and not possible:
                _refuse(option, needed)

    def _idle(self) -> dict[str, Any]:
        """Return the defaults of the options that change nothing beside the others."""
        idle: list[str] = []
        if self.method != "em" or self.variant != "published":
            idle += ["max_iter", "tol"]
        if self.noise == "tangent" and self.variance == "dirichlet":
            idle.append("variance")  # auto resolves to dirichlet
        return {field.name: field.default for field in fields(self) if field.name in idle}

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as a JSON-able dictionary, every one of them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification of a dictionary; unknown names raise `InvalidParameterError`."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InvalidParameterError(
                f"Unknown parameters: {', '.join(unknown)}.", remedy=f"Known are {', '.join(sorted(known))}."
            )
        return cls(**values)


def _refuse(option: str, needed: str) -> None:
    raise InvalidParameterError(
        f"{option} has a meaning with {needed} only.", remedy=f"Leave it at its default, or ask for {needed}."
    )
