"""Tests of the points of the explorer: draws, spread, selection."""
