"""Goals for a spread, all of which must hold."""

RHO = 0.85
RATIO = (0.7, 1.4)
COVERAGE = (0.85, 0.95)
