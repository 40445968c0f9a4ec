"""Random changes of logic, and whether the nearest tests find them."""
