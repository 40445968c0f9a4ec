"""Thresholds behind every statement on certainty: of audits.

A share is an R^2 or a share of neighbors in [0, 1], and a correlation is a rank correlation over points.
"""

from __future__ import annotations

# Shares of an audit that remain in another sample: `remains`, arrangement and shape.
TRUST = 0.6
PARTLY = 0.3  # below it, do not rely on the share; also the smallest share of neighbors beyond chance
FEW_POINTS = 100  # points, below which data without visible structure cannot be told from data with some
STAYS = 0.8  # share of resamples in which an island or a pair of groups has to be isolated to be trusted
UNCLEAR_ISLAND = (0.6, 0.95)  # shares of resamples in which an island is isolated, between which more halves are made
MOST_SAMPLES = 0.5  # share of resamples from which on an island is said to be separate in most of them
CLEARANCE = 2.5  # standard errors between a share and the thresholds, from which on more resamples change no statement

# Whether the data have structure.
STRUCTURE_LEVEL = 0.025  # p-value up to which features are related: noise is called structure in one of 40 samples

MIN_KEPT = 0.01  # share of neighbors that a map which shows anything keeps beyond the share by chance
CLEAR_GAIN = 0.1  # a map clearly beats chance if it keeps this share of the neighbors that maps of permuted data lose
DOMINANT = 0.9  # share of the variance in one feature, from which on a map shows little else

# Isolation of islands and groups.
ISLAND_CONTACT = 0.02  # share of an island's points that may touch another island
GROUP_CONTACT = 0.1  # the same share for groups by labels, because labels may be wrong

# Places where the picture and its resamples disagree.
FAR = 4.0  # distance of two points in units of the larger distance to a k-th neighbor, from which on they are far
LIKELY_NEIGHBORS = 0.4  # probability of two points to be neighbors in another sample, from which on a tear is said
DISTURBED = 0.1  # share of a point's neighbors that are torn off, from which on the point is marked
MOSTLY = 0.5  # share of a point's neighbors in the picture that are far elsewhere, from which on the point is glued
FEW_DISTURBED, MANY_DISTURBED = 0.01, 0.5  # share of marked points: fewer are not mentioned, more are no local fault
FOREIGN = 0.5  # coordinates are no map of a method if they share fewer neighbors with its maps than times this share
FOREIGN_GAP = 0.1  # and at least this share fewer
