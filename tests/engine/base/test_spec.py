"""The declaration of the fit parameters."""

import inspect
from dataclasses import fields
from typing import Any, TypedDict, get_type_hints

import numpy as np
import pytest

from glle_engine import FitSpec, fit, manifolds
from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import Parameter, require_known_names, with_keywords
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


def test_a_record_has_each_option_but_none() -> None:
    """Also those at their defaults; None is left out, and read as before."""
    for name, method in METHODS.items():
        record = method.spec().to_dict()
        assert None not in record.values(), name
        assert method.spec.from_dict(record) == method.spec()
    assert METHODS["ppca"].spec().to_dict() == {"n_components": 2, "solver": "closed-form", "prior": "flat"}


def test_an_unknown_name_gives_the_closest_one() -> None:
    """A misspelled keyword is an error that names the parameter."""
    with pytest.raises(InvalidParameterError, match="Did you mean n_neighbors") as caught:
        fit(SHEET, n_neighbours=7)  # type: ignore[call-arg]
    assert "max_iter" in caught.value.remedy
    with pytest.raises(InvalidParameterError, match="Unknown parameters: qqq") as caught:
        FitSpec.from_dict({"qqq": 1})
    assert caught.value.remedy.startswith("The parameters are method, ")
    with pytest.raises(InvalidParameterError) as caught:
        require_known_names(["qqq"], ["labels", "seed", "labels"])
    assert caught.value.remedy == "The parameters are labels, seed."


PUBLISHED: Any = {"variant": "published"}
DISTANCES: Any = {"metric": "precomputed"}
CONSTRAINED = "variant='constrained'"


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"mean": "derived"}, "method='direct'"),
        ({"covariance": "full"}, "method='em' and variant='published'"),
        ({"covariance": "full", "method": "direct", **PUBLISHED}, "method='em' and variant='published'"),
        ({"noise": "tangent", **PUBLISHED}, CONSTRAINED),
        ({"neighborhoods": "adaptive", **PUBLISHED}, CONSTRAINED),
        ({"neighborhoods": "adaptive", "noise": "tangent"}, "noise='isotropic'"),
        ({"variance": "ml", **PUBLISHED}, CONSTRAINED),
        ({"landmarks": 50, **PUBLISHED}, CONSTRAINED),
        (DISTANCES | PUBLISHED, CONSTRAINED),
        (DISTANCES | {"noise": "auto"}, "noise='isotropic'"),
        (DISTANCES | {"neighborhoods": "adaptive"}, "neighborhoods='fixed'"),
        (DISTANCES | {"search": "approximate"}, "search='exact'"),
        (DISTANCES | {"landmarks": 50}, "landmarks='all'"),
    ],
)
def test_options_without_a_meaning_are_refused(options: Any, needed: str) -> None:
    """By their names, with what gives them one."""
    with pytest.raises(InvalidParameterError, match="applies only with") as caught:
        FitSpec(**options)
    assert caught.value.remedy == f"Leave it at its default, or use {needed}."


def test_options_without_an_effect_are_reset() -> None:
    """Steps belong to the published em, and the tangent noise has one variance; landmarks are enough for the graph."""
    assert FitSpec(covariance="full", max_iter=7, **PUBLISHED).max_iter == 7
    assert FitSpec(mean="derived", method="direct").mean == "derived"
    for spec in (FitSpec(max_iter=7), FitSpec(max_iter=7, method="direct", **PUBLISHED)):
        assert spec.max_iter == FitSpec().max_iter
    assert FitSpec(noise="tangent", variance="dirichlet").variance == "auto"
    assert FitSpec(variance="dirichlet").variance == "dirichlet"
    for options, minimum in (({}, 4), ({"n_neighbors": 8}, 9), ({"n_components": 12}, 14)):
        assert FitSpec(landmarks=minimum, **options).landmarks == minimum  # type: ignore[arg-type]
        with pytest.raises(InvalidParameterError, match=f"of at least {minimum}"):
            FitSpec(landmarks=minimum - 1, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "n", "landmarks"),
    [
        ({}, 2000, ["all"]),
        ({}, 2001, ["all", 2000]),
        ({}, 5000, ["all", 4000, 2000]),
        ({}, 50_000, ["all", 4000, 2000]),
        ({}, 50_001, [4000, 2000]),
        ({"disconnected": "error"}, 50_001, ["all"]),
        (DISTANCES, 5000, ["all"]),
        (PUBLISHED, 5000, ["all"]),
        ({"n_neighbors": 999}, 5000, ["all", 4000, 2000]),
        ({"n_neighbors": 1000}, 5000, ["all"]),
        ({"n_components": 997}, 5000, ["all", 4000, 2000]),
        ({"n_components": 998}, 5000, ["all"]),
        ({"landmarks": 300}, 5000, [300]),
    ],
)
def test_landmarks_are_chosen_for_many_points(options: Any, n: int, landmarks: list[Any]) -> None:
    """Where half of them are enough for the neighbors and the components; 4,000 landmarks decide the neighbors."""
    assert [choice.landmarks for choice in FitSpec(**options).choices(n)] == landmarks
    assert FitSpec(**options).of_points(n).choices(n) == FitSpec(**options).choices(n)
    if n > 50_000:
        k = 22 if landmarks[0] == 4000 else 30
        assert FitSpec(**options).of_points(n).n_neighbors == k


def test_keywords_of_a_typed_dict_are_in_the_signature() -> None:
    """Those that can be None are so by default; the defaults of the others are unknown."""

    class Options(TypedDict):
        count: int
        name: str | None
        other: Any

    @with_keywords(Options)
    def call(**options: Any) -> None:
        del options

    defaults = {name: each.default for name, each in inspect.signature(call).parameters.items()}
    assert defaults == {"count": ..., "name": None, "other": None}


def test_parameters_say_their_domain() -> None:
    """In words and as a schema, and take what is in it: both ends of closed bounds, no end of open ones."""
    count = Parameter(kind="integer", doc="", minimum=2, maximum=9, words=("auto",))
    share = Parameter(kind="number", doc="", above=0, below=1, optional=True)
    seed = Parameter(kind="integer", doc="", maximum=2**64 - 1)
    word = Parameter(kind="word", doc="", words=("a", "b"))
    either = Parameter(kind="integer", doc="", words=("auto", "all"))
    flag = Parameter(kind="boolean", doc="")
    assert [each.domain() for each in (count, share, seed, word, either)] == [
        "an integer of at least 2 and of at most 9, or auto",
        "a finite number above 0 and below 1, or null",
        "an integer of at most 2^64 - 1",
        "one of a, b",
        "an integer, or one of auto, all",
    ]
    taken: list[tuple[Parameter, object, object]] = [
        (count, 2, 2), (count, np.int8(9), 9), (count, None, "auto"), (count, "auto", "auto"),
        (share, 0.5, 0.5), (share, None, None), (word, "a", "a"), (flag, False, False),
    ]  # fmt: skip
    for parameter, value, expected in taken:
        assert parameter.check("x", value) == expected
    refused: list[tuple[Parameter, object]] = [
        (count, 1), (count, 10), (count, 2.0), (count, True), (count, "all"), (share, 0), (share, 1),
        (share, float("nan")), (share, True), (share, np.ones(2)), (word, "c"), (word, None), (seed, 2**64),
        (seed, None), (flag, 1), (flag, "true"),
    ]  # fmt: skip
    for parameter, value in refused:
        with pytest.raises(InvalidParameterError, match=r"x=.* is not .*\. Give another value\.$"):
            parameter.check("x", value)
    common = {"description": "", "default": 3}
    numbers = {"type": "integer", "minimum": 2, "maximum": 9}
    assert count.schema(3) == {"anyOf": [numbers, {"type": "string", "enum": ["auto"]}], **common}
    bounded = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    assert share.schema(3) == {"anyOf": [bounded, {"type": "null"}], **common}
    assert word.schema("a") == {"type": "string", "enum": ["a", "b"], "description": "", "default": "a"}
    assert flag.schema(default=3) == {"type": "boolean", **common}


def test_a_long_value_is_cut_in_the_message() -> None:
    """To 60 characters with its quotes."""
    for length, shown in ((58, repr("x" * 58)), (59, f"'{'x' * 56}...")):
        with pytest.raises(InvalidParameterError) as caught:
            FitSpec(method="x" * length)  # type: ignore[arg-type] # what is tested
        assert caught.value.message.startswith(f"method={shown} ")
