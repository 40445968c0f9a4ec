"""The containers, built and run by an engine of the test's own."""
