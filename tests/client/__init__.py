"""Tests of `glle`."""
