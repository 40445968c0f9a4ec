"""Fuzzing of the running service with valid and invalid requests."""
