"""Tests of the real containers, built and run by a separate engine."""
