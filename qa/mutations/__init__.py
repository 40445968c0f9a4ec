"""Mutation testing: random changes of logic in the product, which the nearest tests should find."""
