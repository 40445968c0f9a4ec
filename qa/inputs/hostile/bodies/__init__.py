"""Hostile bodies: made by hand, by mutation, and bombs."""
