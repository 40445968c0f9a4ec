"""What is to be fitted: the parameters of a posterior, checked against each other."""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, SupportsIndex, get_args

from glle_engine.errors import InvalidParameterError

Method = Literal["em", "direct"]
Variant = Literal["constrained", "published"]
Variance = Literal["auto", "dirichlet", "ml"]
Mean = Literal["lle", "derived"]
Covariance = Literal["spherical", "full"]
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


def check_integer(name: str, value: object, at_least: int) -> None:
    """Raise `InvalidParameterError` unless `value` is an integer of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise InvalidParameterError(
            f"{name}={value!r} is not an integer of at least {at_least}.",
            remedy=f"Give {name} as an integer of at least {at_least}.",
        )


def check_positive(name: str, value: object, *, zero: bool = False) -> None:
    """Raise `InvalidParameterError` unless `value` is finite and positive (or zero, where allowed)."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):  # type: ignore[operator] # a number, as checked
        domain = "a finite number that is not negative" if zero else "a finite positive number"
        raise InvalidParameterError(f"{name}={value!r} is not {domain}.", remedy=f"Give {name} as {domain}.")


@dataclass(frozen=True, kw_only=True)
class FitSpec:
    """Parameters of a posterior over reconstruction weights.

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
        M-step of the published em: ``"spherical"`` (Eq. 29) or ``"full"`` (the zero of Eq. 26).
    max_iter, tol
        The published em stops after `max_iter` iterations or when no sigma_i changes by more than
        `tol`, relatively.
    disconnected
        What to do with a graph of several components, or of several closed classes: ``"refuse"`` the
        former and note the latter, or ``"bridge"`` them by their shortest edges (`glle_engine.bridging`);
        `glle_engine.components.fit_components` fits each component by itself.
    noise
        Reconstruction noise of the constrained variant: ``"isotropic"``, whose mean is LLE, or
        ``"tangent"``, which tells directions along the sheet from those off it (`glle_engine.frames`): the
        choice for noisy data, few neighbours and many features.
    neighborhoods
        ``"fixed"``: all k candidates are neighbours. ``"adaptive"``: of the k candidates those that lie near the
        point's tangent plane (`glle_engine.adaptive`), for data whose turns come close to each other; with the
        constrained variant and isotropic noise.
    search
        ``"exact"``, or ``"approximate"``: neighbours by a graph of small worlds (`glle_engine.approximate`; needs
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
        for name in ("n_neighbors", "n_components", "max_iter"):  # numpy's integers are integers, too
            if isinstance(getattr(self, name), SupportsIndex) and not isinstance(getattr(self, name), bool):
                object.__setattr__(self, name, operator.index(getattr(self, name)))
        for field in fields(self):
            if field.name in _CHOICES:
                check_choice(field.name, getattr(self, field.name))
        check_integer("n_neighbors", self.n_neighbors, 2)
        check_integer("n_components", self.n_components, 1)
        check_integer("max_iter", self.max_iter, 1)
        check_positive("reg", self.reg)
        check_positive("tol", self.tol)
        for name in ("reg", "tol"):  # 1 and 1.0 are the same specification
            object.__setattr__(self, name, float(getattr(self, name)))
        self._check_together()

    def _check_together(self) -> None:
        """Refuse an option that has no meaning beside the others."""
        constrained = self.variant == "constrained"
        adaptive = self.neighborhoods == "adaptive"
        for asked, possible, option, needed in (
            (self.mean == "derived", self.method == "direct", "mean='derived' (Eq. 35)", "method='direct'"),
            (
                self.covariance == "full",
                self.method == "em" and not constrained,
                "covariance='full' (Eq. 26)",
                "method='em' and variant='published'",
            ),
            (self.noise == "tangent", constrained, "noise='tangent'", "variant='constrained'"),
            (adaptive, constrained, "neighborhoods='adaptive'", "variant='constrained'"),
            (adaptive, self.noise == "isotropic", "neighborhoods='adaptive'", "noise='isotropic'"),
            (self.variance != "auto", constrained, f"variance={self.variance!r}", "variant='constrained'"),
        ):
            if asked and not possible:
                _refuse(option, needed)

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
