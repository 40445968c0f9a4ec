"""Goals for the ensemble spread over all settings."""

RHO = 0.80  # mean rank correlation with the truth
RATIO = (0.7, 1.4)  # of the median spreads, in a share of .95 of the cases
RATIO_SHARE = 0.95
COVERAGE = (0.85, 0.97)  # of 90 % regions, in a share of .90 of the settings
COVERAGE_SHARE = 0.90
RELIABILITY = 0.7  # rank correlation over settings of the expected correlation with the found one
