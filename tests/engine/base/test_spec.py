"""The declaration of the fit parameters."""

import inspect
from dataclasses import fields
from typing import get_type_hints

import pytest

from glle_engine import FitSpec, fit, manifolds
from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.spec import FitParameters, NeighborCount, default_neighbors
from glle_engine.methods import METHODS

SHEET = manifolds.make("swiss_roll", 60, seed=0).X


def test_keyword_arguments_have_the_names_and_types_of_the_fields() -> None:
    """The TypedDict for type checkers follows `FitSpec`, whose number of neighbors is that of a resolved one."""
    hints = {name: get_type_hints(FitSpec)[name] for name in FitSpec.parameters()}
    assert get_type_hints(FitParameters) == hints | {"n_neighbors": NeighborCount}


@pytest.mark.parametrize(("n", "k"), [(4, 2), (12, 6), (500, 10), (2000, 16), (5000, 25), (50_000, 30)])
def test_neighbors_grow_with_the_root_of_the_number_of_points(n: int, k: int) -> None:
    """An explicit number stays, landmarks count as points, and a specification of n points is resolved."""
    assert default_neighbors(n) == FitSpec().of_points(n).n_neighbors == k
    assert FitSpec(n_neighbors=7).of_points(n).n_neighbors == 7
    assert FitSpec(n_neighbors=None, variance=None) == FitSpec()  # type: ignore[arg-type] # None means auto
    assert FitSpec(landmarks=60).of_points(max(n, 61)).n_neighbors == 10
    assert FitSpec(landmarks="all").of_points(20 * n).n_neighbors == default_neighbors(20 * n)
    assert FitSpec().of_points(n).of_points(10 * n) == FitSpec().of_points(n)


def test_the_estimator_takes_the_parameters_and_defaults_of_the_fields() -> None:
    """scikit-learn needs an explicit signature; its checks need a default for a few points."""
    estimator = pytest.importorskip("glle_engine.estimator")
    signature = inspect.signature(estimator.GLLE.__init__).parameters
    defaults = {name: parameter.default for name, parameter in signature.items() if name != "self"}
    own = {"random_state": 0}
    assert defaults == {field.name: field.default for field in fields(FitSpec)} | own


def test_keywords_replace_fields_of_a_specification() -> None:
    """`fit(X, spec, n_components=1)` keeps the other fields of the specification."""
    expected = FitSpec(n_neighbors=7, n_components=1, landmarks="all")
    assert fit(SHEET, FitSpec(n_neighbors=7), n_components=1).spec == expected
    assert fit(SHEET).spec == fit(SHEET, n_neighbors="auto").spec == FitSpec(n_neighbors=10, landmarks="all")
    assert fit(SHEET, n_neighbors=7, n_components=1).spec == expected


def test_a_record_has_no_option_that_is_idle() -> None:
    """Neither None nor the default of an added option, so that a new one changes no id; both are read as before."""
    for name, method in METHODS.items():
        record = method.spec().to_dict()
        assert None not in record.values(), name
        assert method.spec.from_dict(record) == method.spec()
    assert "solver" not in METHODS["ppca"].spec().to_dict()
    assert METHODS["ppca"].spec(solver="em").to_dict()["solver"] == "em"


def test_an_unknown_name_gives_the_closest_one() -> None:
    """A misspelled keyword is an error that names the parameter."""
    with pytest.raises(InvalidParameterError, match="Did you mean n_neighbors") as caught:
        fit(SHEET, n_neighbours=7)  # type: ignore[call-arg]
    assert "max_iter" in caught.value.remedy
    with pytest.raises(InvalidParameterError, match="Unknown parameters: qqq") as caught:
        FitSpec.from_dict({"qqq": 1})
    assert caught.value.remedy.startswith("The parameters are method, ")


def test_a_long_value_is_cut_in_the_message() -> None:
    """To 60 characters with its quotes."""
    for length, shown in ((58, repr("x" * 58)), (59, f"'{'x' * 56}...")):
        with pytest.raises(InvalidParameterError) as caught:
            FitSpec(method="x" * length)  # type: ignore[arg-type] # what is tested
        assert caught.value.message.startswith(f"method={shown} ")
