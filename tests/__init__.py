"""Tests, one folder a room; system tests use real servers, workers and HTTP."""
