"""Tests of the routes of embeddings."""
