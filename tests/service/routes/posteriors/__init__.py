"""Tests of the routes of posteriors and their analyses."""
