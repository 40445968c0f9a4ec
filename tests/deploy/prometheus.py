"""Selectors of PromQL expressions, and the series of an exposition that they match."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SELECTOR = re.compile(r"\b(glle_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


@dataclass(frozen=True)
class Series:
    """A series: its name and its labels."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Selector:
    """A selector: the name of its metric, and its matchers as (label, operator, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def selects(self, series: Series) -> bool:
        """Return whether a series has the name and all labels."""
        return series.name == self.name and all(
            label in series.labels and _matches(series.labels[label], operator, value)
            for label, operator, value in self.matchers
        )


def selectors(expression: str) -> list[Selector]:
    """Return the selectors of an expression."""
    return [
        Selector(name, tuple((label, operator, value) for label, operator, value in MATCHER.findall(matchers)))
        for name, matchers in SELECTOR.findall(expression)
    ]


def series_of(exposition: str, **target: str) -> list[Series]:
    """Return the series of an exposition, with the labels that Prometheus adds of the target."""
    return list(_series(exposition, target))


def _series(exposition: str, target: Mapping[str, str]) -> Iterator[Series]:
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            yield Series(sample.name, {**target, **sample.labels})


def _matches(value: str, operator: str, pattern: str) -> bool:
    is_equal = value == pattern if operator in {"=", "!="} else re.fullmatch(pattern, value) is not None
    return is_equal == (not operator.startswith("!"))
