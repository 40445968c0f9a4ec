"""The pages of the engine and the client have the signatures and docstrings of the code."""

from __future__ import annotations

import glle
import glle.client
from docs.figures import reference
from glle_engine.base.spec import FitSpec
from glle_engine.methods import METHODS


def test_pages_are_generated() -> None:
    """The stored pages are those that `make generate` writes."""
    for page in reference.PAGES:
        text = page.read_text(encoding="utf-8")
        assert reference.written(text) == text, f"run make generate: {page.name} differs"


def test_pages_have_every_public_name_with_its_parameters() -> None:
    """The engine's page has all public functions, estimators and parameters; the client's page has all errors."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in reference.PAGES)
    names = {name for name in glle.__all__ if name not in glle.client.__all__} - {"datasets", "GlleError"}
    assert {name for name in names if f" glle.{name}\n" not in text and f"estimator.{name}\n" not in text} == set()
    for name in {*FitSpec.parameters(), *(name for each in METHODS.values() for name in each.spec.parameters())}:
        assert f"- `{name}` (" in text, name
