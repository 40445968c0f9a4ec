"""Errors of the engine."""

import pickle

import pytest

from glle_engine import GlleError
from glle_engine.base import errors


@pytest.mark.parametrize("kind", [each for each in vars(errors).values() if getattr(each, "__base__", 0) is GlleError])
def test_an_error_crosses_processes(kind: type[GlleError]) -> None:
    """Its class, code, message, remedy and details survive a pickle."""
    words = ("code-of-table", "It is wrong.") if kind is errors.TableError else ("It is wrong.",)
    error = kind(*words, remedy="Mend it.", details={"row": 3})
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own
    assert type(copy) is kind
    assert (copy.code, copy.message, copy.remedy, copy.details) == (error.code, "It is wrong.", "Mend it.", {"row": 3})
    assert str(copy) == str(error)
