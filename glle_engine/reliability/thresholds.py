"""Thresholds by which an audit decides what to say about an embedding, such as "trusted" or "no structure".

All shares are in [0, 1]: an R^2, or a share of neighbors, points or resamples. Correlations are rank correlations.
"""

from __future__ import annotations

# Shares of a map that another sample would reproduce: `remains`, arrangement and shape.
TRUST = 0.6  # shares from here on are trusted
PARTLY = 0.3  # layouts are trusted roughly from here on, and neighborhoods from this share beyond chance on
FEW_POINTS = 100  # with fewer points, an audit may miss all but a strong structure
STAYS = 0.8  # an island or a pair of groups is trusted if it is isolated in at least this share of resamples
UNCLEAR_ISLAND = (0.6, 0.95)  # if an island is isolated in a share of resamples between these, more halves are made
MOST_SAMPLES = 0.5  # an island is said to be separate in most samples from this share of resamples on
CLEARANCE = 2.5  # if a share is this many standard errors from all thresholds, more resamples would change no statement

# Whether the data have structure.
STRUCTURE_LEVEL = 0.025  # data have structure up to this p-value: noise is called structure in one of 40 samples

MIN_KEPT = 0.01  # a map shows something if its share of kept neighbors exceeds the share by chance by at least this
CLEAR_GAIN = 0.1  # a map clearly beats chance if it keeps this share of the neighbors that maps of permuted data lose
CLUSTERED = 1.4  # a column has clusters if the excess mass of its two modes, times the root of n, exceeds this
NEAR_IN_DATA = 0.8  # neighbors in a map are trusted if at least this share of them is near in the data
TRUE_DISTANCES = 0.65  # layouts are trusted from this rank correlation with distances in the data, or along them, on
DOMINANT = 0.9  # if one feature has at least this share of the variance, a map shows little else

SHARED_COORDINATE = 0.5  # embeddings of two samples share a coordinate from this squared canonical correlation on
FILLED = 0.5  # points fill a further dimension if their intrinsic dimension exceeds the map's by this

# Rows that are no independent samples.
NEAR_COPY = 0.1  # a row has a near-copy if its nearest row is nearer than this share of the distance to the fifth
MIN_COPIES = 0.3  # there is a note if at least this share of the rows has a near-copy
DEPENDENT_COPIES = 0.5  # halves are not independent if at least this share of the rows has a near-copy
MAX_STEP = 0.8  # rows are a series if consecutive rows are nearer than this share of the distance of other rows
# Rows form sets of k + 1 near-copies if a row and its k nearest rows have this share of their nearest rows in common,
SET_OVERLAP = 0.9
SET_DROP = 0.12  # or if the share falls by at least this much from k to k + 1

# Isolation of islands and groups. The reach of an island is a typical distance to a near point of the island
# (`glle_engine.audit.islands`); a point touches another island that is within reach.
ISLAND_CONTACT = 0.02  # share of an island's points that may touch another island
CUT_CONTACT = 0.1  # and at most this multiple of the share of points that would touch if the island were cut in two
WIDER_REACH = 1.5  # the wider reach of another island counts up to this multiple of an island's reach
CHANCE_GAP = 3.0  # length of a gap that one of 20 curves has by chance: log n plus this, in mean distances of points
FAR_CLUMP = 7.0  # small clumps that are farther than this multiple of the reach from every island belong to none
SMALL_ISLAND = 0.02  # islands with a smaller share of the points have to be isolated in the data, too
# Share of a labeled group's points that may touch another group; larger, because labels may be wrong.
GROUP_CONTACT = 0.1

# Points at which a map disagrees with the data or with maps of other samples: tears and glued points.
FAR = 4.0  # two points are far in the map beyond this multiple of the larger of their distances to the k-th neighbor
FAR_RANK = 3  # two points are far in the data if neither is among this multiple of k nearest points of the other,
FAR_DISTANCE = 1.5  # and their distance is beyond this multiple of the larger of their distances to the k-th neighbor
LIKELY_NEIGHBORS = 0.4  # only points that are neighbors in another sample with this probability can be torn apart
DISTURBED = 0.1  # a point is marked as torn if more than this share of its neighbors is torn off
GLUED = 0.35  # a point is marked as glued if more than this share of its neighbors in the map is far in the data
# Marked points are not mentioned if they are a smaller share, and are no local fault if they are a larger share.
FEW_DISTURBED, MANY_DISTURBED = 0.01, 0.5
SMALL_TEAR = 0.02  # a tear is small if one of its sides has less than this share of the points
# Coordinates do not come from a method if the share of neighbors that they have in common with maps of halves, beyond
# chance, is below FOREIGN times the share of two maps of halves, and the two shares differ by at least FOREIGN_GAP.
FOREIGN = 0.5
FOREIGN_GAP = 0.1
