"""The capacity model: laws of cost, their fits, plans and validation."""
