"""Inputs that a client should not send: fuzzed requests and hostile bodies."""
