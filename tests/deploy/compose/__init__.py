"""Tests of the real containers, which a dockerd of the tests builds and runs."""
