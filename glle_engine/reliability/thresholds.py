"""Thresholds behind every statement of an audit.

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

MIN_KEPT = 0.01  # a map shows something if it keeps this share of neighbors more than chance would
CLEAR_GAIN = 0.1  # a map clearly beats chance if it keeps this share of the neighbors that maps of permuted data lose
CLUSTERED = 1.4  # excess mass of two modes of a column, times the root of n, from which on the column has clusters
NEAR_IN_DATA = 0.8  # share of neighbors in the map that are near in the data, from which on neighbors can be trusted
TRUE_DISTANCES = 0.65  # rank correlation with distances in the data or along them, from which on layouts are trusted
DOMINANT = 0.9  # share of the variance in one feature, from which on a map shows little else

SHARED_COORDINATE = 0.5  # squared canonical correlation from which on two samples share a coordinate
FILLED = 0.5  # points fill a further dimension if their intrinsic dimension exceeds the map's by this

# Rows that are no independent samples.
NEAR_COPY = 0.1  # rows are near-copies if they are nearer than this, relative to the distance to the fifth neighbor
MIN_COPIES = 0.3  # share of rows with a near-copy from which on there is a note
DEPENDENT_COPIES = 0.5  # share of rows with a near-copy from which on halves are not independent
MAX_STEP = 0.8  # order matters if consecutive rows are nearer than this, relative to random or to later rows
SET_OVERLAP = 0.9  # share of neighbors that neighbors have in common, from which on they are sets of near-copies
SET_DROP = 0.12  # or the share falls by this much from k neighbors to k + 1: k + 1 rows are then a set

# Isolation of islands and groups.
ISLAND_CONTACT = 0.02  # share of an island's points that may touch another island
CUT_CONTACT = 0.1  # an island may touch others with this share of the points that would touch if it were cut in two
WIDER_REACH = 1.5  # the reach of another island counts up to this multiple of an island's own reach
CHANCE_GAP = 3.0  # points in a gap of a curve, beyond the logarithm of their number: one of 20 curves has such a gap
FAR_CLUMP = 7.0  # in units of the reach: small clumps farther from every island belong to none
SMALL_ISLAND = 0.02  # islands with a smaller share of the points have to be isolated in the data, too
# Share of a labeled group's points that may touch another group; larger, because labels may be wrong.
GROUP_CONTACT = 0.1

# Places where the picture and its resamples disagree.
FAR = 4.0  # distance of two points in units of the larger distance to a k-th neighbor, from which on they are far
FAR_RANK = 3  # a neighbor in the map is far in the data from this multiple of k on, by its rank
FAR_DISTANCE = 1.5  # and from this multiple of the larger distance to a k-th neighbor on
LIKELY_NEIGHBORS = 0.4  # probability of two points to be neighbors in another sample, from which on a tear is reported
DISTURBED = 0.1  # share of a point's neighbors that are torn off, from which on the point is marked
GLUED = 0.35  # share of a point's neighbors in the map that are far in the data, from which on the point is glued
FEW_DISTURBED, MANY_DISTURBED = 0.01, 0.5  # share of marked points: fewer are not mentioned, more are no local fault
SMALL_TEAR = 0.02  # a tear is small if one of its sides has less than this share of the points
# Coordinates are not by a method if they share less than this fraction of the neighbors that its maps share,
FOREIGN = 0.5
FOREIGN_GAP = 0.1  # and if the two shares differ by at least this
