"""Thresholds by which an audit decides what to say about an embedding, such as "trusted" or "no structure".

All shares are in [0, 1]: an R^2, or a share of neighbors, points or resamples. Correlations are rank correlations.
"""

from __future__ import annotations

# Shares that another sample would reproduce: of the whole map, of the arrangement of its islands, and of their shapes.
MIN_TRUSTED_SHARE = 0.6  # an answer is trusted if at least this share of the map would remain in another sample
# From this share on, the rough layout of a map is trusted. Neighborhoods are trusted if at least this share of the
# neighbors would remain, beyond the share that remains by chance.
MIN_PARTLY_TRUSTED_SHARE = 0.3
MIN_POINTS_FOR_WEAK_STRUCTURE = 100  # with fewer points, an audit may miss all but a strong structure
# An island or a pair of groups is trusted if it is isolated in the maps of at least this share of the random halves.
MIN_ISOLATED_SHARE = 0.8
# More random halves of the data are embedded if the share of the halves in whose maps an island is isolated is between
# these two.
UNCLEAR_ISOLATED_SHARES = (0.6, 0.95)
# An island is said to be separate in most samples if it is isolated in the maps of at least this share of the halves.
MIN_SHARE_OF_MOST_SAMPLES = 0.5
# If a share is this many standard errors from all thresholds, more halves of the data would hardly change a statement.
MIN_STANDARD_ERRORS = 2.5

# Whether the data have structure.
STRUCTURE_LEVEL = 0.025  # data have structure up to this p-value: noise is called structure in one of 40 samples

MIN_KEPT = 0.01  # a map shows something if its share of kept neighbors exceeds the share by chance by at least this
# A map clearly beats chance if the share of neighbors that it keeps exceeds the share in maps of permuted data by at
# least this part of the largest possible excess.
CLEAR_GAIN = 0.1
MIN_EXCESS_MASS = 1.4  # a column has clusters if the excess mass of its two modes, times the root of n, exceeds this
MIN_SHARE_NEAR_IN_DATA = 0.8  # neighbors in a map are trusted if at least this share of them is near in the data
# Layouts are trusted if the distances in the map have at least this rank correlation with Euclidean or with geodesic
# distances in the data.
MIN_DISTANCE_CORRELATION = 0.65
MIN_DOMINANT_VARIANCE_SHARE = 0.9  # if one feature has at least this share of the variance, a map shows little else

MIN_SQUARED_CANONICAL_CORRELATION = 0.5  # embeddings of two samples share a coordinate from this value on
# Points fill a further dimension if their intrinsic dimension exceeds the dimension of the map by this.
MIN_EXTRA_DIMENSION = 0.5

# Rows that are no independent samples.
# A row has a near-copy if its nearest row is nearer than this share of the distance to the fifth.
MAX_NEAR_COPY_RATIO = 0.1
MIN_NOTED_COPY_SHARE = 0.3  # there is a note if at least this share of the rows has a near-copy
MIN_DEPENDENT_COPY_SHARE = 0.5  # random halves are not independent if at least this share of the rows has a near-copy
MAX_STEP_RATIO = 0.8  # rows are a series if consecutive rows are nearer than this share of the usual distance of rows
# The set of a row is the row with its k nearest rows. The overlap at k is the share of rows that the sets of two rows
# have in common, averaged over all pairs of a row and one of its k nearest rows. Rows form sets of k + 1 near-copies if
# one of these holds:
SET_OVERLAP = 0.9  # the overlap at k is at least this
SET_DROP = 0.12  # the overlap falls by at least this much from k to k + 1

# Isolation of islands, which are clumps of points in a map, and of labeled groups. The reach of an island is a typical
# distance from one of its points to near points of the same island (`glle_engine.audit.islands`). A point touches
# another island if a point of that island lies within the reach of the point's own island.
# An island is isolated if at most the share MAX_ISLAND_CONTACT of its points touches other islands, and if this share
# is at most MAX_CUT_CONTACT_RATIO times the share that would touch the other part if the island itself were cut in two.
MAX_ISLAND_CONTACT = 0.02
MAX_CUT_CONTACT_RATIO = 0.1
# How near a point of another island must be to touch it: within the larger of the two islands' reaches (typical
# distances of near points within an island), but at most this multiple of the reach of the point's own island.
MAX_REACH_RATIO = 1.5
# With a probability of 5 % (exp(-3)), n random points on a curve leave a gap that is longer than log n + CHANCE_GAP
# times the mean distance of successive points.
CHANCE_GAP = 3.0
# A point starts a new clump if it is farther from all clusters than this multiple of the reach, a typical distance of
# near points, here measured among all points that are clustered. A clump that does not grow to 8 points is no island.
FAR_CLUMP_REACHES = 7.0
SMALL_ISLAND_SHARE = 0.02  # islands with a smaller share of the points have to be isolated in the data, too
# Share of a labeled group's points that may touch another group. It is larger than MAX_ISLAND_CONTACT, because some
# labels may be wrong.
GROUP_CONTACT = 0.1

# Points at which a map disagrees with the data or with maps of other samples: tears and glued points.
# Two points are far apart in the map if their distance exceeds this multiple of the distance from each of the two to
# its k-th neighbor.
FAR_RATIO_IN_MAP = 4.0
# Two points are far apart in the data if neither is among the 3 k nearest points of the other, and their distance
# exceeds 1.5 times the distance from each of the two to its k-th neighbor.
FAR_RANK_RATIO = 3
FAR_RATIO_IN_DATA = 1.5
# Only points that are neighbors in another sample with at least this probability can be torn apart.
MIN_NEIGHBOR_PROBABILITY = 0.4
MAX_TORN_SHARE = 0.1  # a point is marked as torn if more than this share of its neighbors is torn off
# A point is marked as glued if more than this share of its neighbors in the map is far in the data.
MAX_GLUED_SHARE = 0.35
# An audit mentions torn or glued points if they are at least the first share of all points, and at most the second:
# with more of them, the map as a whole is at fault, and no single place.
FEW_DISTURBED, MANY_DISTURBED = 0.01, 0.5
SMALL_TEAR_SHARE = 0.02  # a tear is small if one of its sides has less than this share of the points
# Coordinates are compared with the method's maps of random halves of the data. They do not come from the method if they
# share fewer neighbors with these maps than the maps share with each other: at least FOREIGN_GAP less, and less than
# FOREIGN times as much. For the second condition, the share of chance is subtracted from both shares.
FOREIGN = 0.5
FOREIGN_GAP = 0.1
