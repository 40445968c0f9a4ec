"""Hostile bodies: handmade, mutated, and bombs."""
