"""Generators of the documentation's figures and tables: `make figures`."""
