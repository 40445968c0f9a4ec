"""Short representations: one line, without the values of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

MOST = 40  # characters of a value


def brief(self: Any) -> str:
    """Return the class of a dataclass and its fields in one line; None and empty fields are left out.

    An array is its dtype and shape, a long collection its length, a nested dataclass its class. Use it as `__repr__`.
    """
    shown = ((field.name, _value(getattr(self, field.name))) for field in fields(self))
    return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in shown if text)})"


def _value(value: Any) -> str:
    """Return a value in few characters; empty for none."""
    if value is None or (isinstance(value, (str, Mapping, Sequence)) and not value):
        return ""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    if is_dataclass(value):
        return type(value).__name__
    text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    if len(text) <= MOST and "\n" not in text:
        return text
    return (
        f"<{len(value)} items>" if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str) else _cut(text)
    )


def _cut(text: str) -> str:
    return f"{' '.join(text.split())[: MOST - 3]}..."
