"""Tests of `docs.figures`."""
