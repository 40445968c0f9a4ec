"""The declaration of the fit parameters."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import get_type_hints

import pytest

from glle_engine import FitSpec, fit, manifolds
from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.spec import FitParameters

SHEET = manifolds.make("swiss_roll", 60, seed=0).X


def test_keyword_arguments_have_the_names_and_types_of_the_fields() -> None:
    """The TypedDict for type checkers follows `FitSpec`."""
    assert get_type_hints(FitParameters) == {name: get_type_hints(FitSpec)[name] for name in FitSpec.parameters()}


def test_the_estimator_takes_the_parameters_and_defaults_of_the_fields() -> None:
    """scikit-learn needs an explicit signature; its checks need a default for a few points."""
    estimator = pytest.importorskip("glle_engine.estimator")
    signature = inspect.signature(estimator.GLLE.__init__).parameters
    defaults = {name: parameter.default for name, parameter in signature.items() if name != "self"}
    own = {"n_neighbors": None, "random_state": 0}
    assert defaults == {field.name: field.default for field in fields(FitSpec)} | own


def test_every_parameter_has_a_description_and_a_valid_default() -> None:
    """Schema and documentation are derived from the declaration."""
    for field in fields(FitSpec):
        parameter = FitSpec.parameters()[field.name]
        assert parameter.doc.endswith(".")
        assert parameter.check(field.name, field.default) == field.default


def test_a_refusal_of_parts_has_one_name() -> None:
    """Records of earlier versions say "refuse"."""
    earlier = FitSpec().to_dict() | {"disconnected": "refuse"}
    assert FitSpec.from_dict(earlier) == FitSpec(disconnected="error")
    with pytest.raises(InvalidParameterError, match="one of bridge, error"):
        FitSpec(disconnected="refuse")  # type: ignore[arg-type]


def test_keywords_replace_fields_of_a_specification() -> None:
    """`fit(X, spec, n_components=1)` keeps the other fields of the specification."""
    expected = FitSpec(n_neighbors=7, n_components=1)
    assert fit(SHEET, FitSpec(n_neighbors=7), n_components=1).spec == expected
    assert fit(SHEET, n_neighbors=7, n_components=1).spec == expected


def test_an_unknown_name_gives_the_closest_one() -> None:
    """A misspelled keyword is an error that names the parameter."""
    with pytest.raises(InvalidParameterError, match="Did you mean n_neighbors") as caught:
        fit(SHEET, n_neighbours=7)  # type: ignore[call-arg]
    assert "max_iter" in caught.value.remedy
    with pytest.raises(InvalidParameterError, match="Unknown parameters: nope"):
        FitSpec.from_dict({"nope": 1})
