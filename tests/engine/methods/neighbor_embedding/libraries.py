"""Optional libraries behind the methods."""

import warnings
from typing import Any

import pytest

LIBRARIES = {"umap": "umap", "densmap": "umap", "pacmap": "pacmap"}


def import_or_skip(library: str) -> Any:
    """Import a library, or skip; umap warns that tensorflow is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(library)
