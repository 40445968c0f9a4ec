"""Reference results of the contents of a load."""

from __future__ import annotations

from qa.load.content import Content, Fit, is_refused_alone

DISCONNECTED = "urn:glle:problem:disconnected-graph"


def test_refused_contents_are_disconnected() -> None:
    """Each part comes from a disconnected data set, and fails only for that reason."""
    apart, whole = Fit(Content(10414), 8), Fit(Content(1), 8)
    assert is_refused_alone(apart, DISCONNECTED)
    assert not is_refused_alone(whole, DISCONNECTED)
    assert not is_refused_alone(apart, "urn:glle:problem:internal-error")
