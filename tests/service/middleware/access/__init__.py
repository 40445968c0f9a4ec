"""Tests of who may send a request."""
