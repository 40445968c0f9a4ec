"""Keyword arguments of the methods that take data: the options of `Client.dataset`, and those of the method."""

from __future__ import annotations

from typing import Any, NotRequired

from glle.types import AdviceOptions, CompareOptions, FitOptions, TransformOptions, UploadOptions


class DataOptions(UploadOptions):
    """Options of data to upload: roles of the columns, dialect of a text, labels and colors of the rows."""

    labels: NotRequired[Any]
    """
    One label for each row of an array or a table.
    """
    colors: NotRequired[Any]
    """
    One number for each row of an array or a table.
    """


class FitDataOptions(FitOptions, DataOptions):
    """Keyword arguments of `Client.fit`."""


class AdviceDataOptions(AdviceOptions, DataOptions):
    """Keyword arguments of `Client.advice`."""


class CompareDataOptions(CompareOptions, DataOptions):
    """Keyword arguments of `Client.compare`."""


class TransformDataOptions(TransformOptions, DataOptions):
    """Keyword arguments of `Posterior.transform`."""


def data_options(options: Any) -> tuple[DataOptions, dict[str, Any]]:
    """Return the options of the data, and those of the method."""
    data: Any = {name: value for name, value in options.items() if name in DataOptions.__annotations__}
    return data, {name: value for name, value in options.items() if name not in data}
