"""Fill-reducing elimination orders by approximate minimum degree (quotient graphs: Amestoy, Davis and Duff 1996)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


def minimum_degree(
    start: NDArray[np.int64], adjacent: NDArray[np.int32], group: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return an elimination order (n,) of a symmetric sparse matrix, by approximate minimum degree within each group.

    Within a group, a variable with the fewest neighbors among the variables that are left is eliminated next. Neighbors
    in later groups count, too. Variables that get equal neighbors are eliminated together.

    Parameters
    ----------
    start : (n + 1,) int64
        The neighbors of variable i are adjacent[start[i]:start[i + 1]].
    adjacent : int32
        Symmetric, without repetitions and without the diagonal.
    group : (n,) int32
        The group of each variable; groups are eliminated in ascending order.

    """
    step = _elimination_steps(start, adjacent, group, np.argsort(group, kind="stable"))
    return np.argsort(step, kind="stable").astype(np.int32)


@compiled
def _elimination_steps(
    start: NDArray[np.int64], adjacent: NDArray[np.int32], group: NDArray[np.int32], members: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the number of the step (n,) in which each variable is eliminated, by approximate minimum degree.

    The neighbors of variable i are adjacent[start[i]:start[i + 1]]. Groups of variables are eliminated one after
    another, in ascending order of `group` (n,); `members` (n,) lists the variables group by group.
    """
    n = len(start) - 1
    pool = np.empty(start[n] + start[n] // 2 + 2 * n + 16, np.int32)
    free = start[n]
    for e in range(free):
        pool[e] = adjacent[e]
    # Eliminating a variable, the pivot, joins all of its neighbors by edges. These edges are not stored: the pivot is
    # kept as an *element*, with a list of these neighbors. The list of a variable that is not eliminated yet has first
    # the elements, and then the variables, that are adjacent to it.
    begin, length, degree = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int64)
    for i in range(n):
        begin[i] = start[i]
        length[i] = degree[i] = start[i + 1] - start[i]
    elements = np.zeros(n, np.int32)
    # The number of variables that each variable stands for, because variables with equal lists are merged. While a
    # pivot is being eliminated, the numbers of the pivot and of its neighbors are negative, which marks them. After a
    # variable was eliminated, or merged into another one, its number is 0.
    weight = np.ones(n, np.int32)
    alive = np.zeros(n, np.bool_)  # whether variable i was eliminated and is now an element that lists still refer to
    size = np.zeros(n, np.int64)  # the number of variables in each element's list
    absorber = np.full(n, -1, np.int32)
    head, following, previous = np.full(n + 1, -1, np.int32), np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    outside, mark = np.zeros(n, np.int64), 1
    stamp_of, stamp = np.zeros(n, np.int64), 0
    bucket, chain, code = np.full(n, -1, np.int32), np.full(n, -1, np.int32), np.zeros(n, np.int64)
    kept = np.empty(n, np.int32)
    pivots = np.empty(n, np.int32)
    count, done = 0, 0
    first = 0
    while first < n:
        current_group = group[members[first]]
        last = first
        min_degree = n
        while last < n and group[members[last]] == current_group:
            i = members[last]
            if weight[i] > 0:
                min_degree = min(min_degree, degree[i])
                _link(head, following, previous, degree[i], i)
            last += 1
        while done < last:
            while head[min_degree] == -1:
                min_degree += 1
            p = head[min_degree]
            _unlink(head, following, previous, degree[p], p)
            max_entries = int(length[p])
            for entry in range(begin[p], begin[p] + elements[p]):
                if alive[pool[entry]]:
                    max_entries += length[pool[entry]]
            if free + max_entries > len(pool):
                pool, free = _compact(pool, begin, length, weight, alive, max_entries)
            merged = weight[p]
            weight[p] = -merged
            # The pivot becomes the new element. Its list gets all neighbors of the pivot: the adjacent variables, and
            # the variables of the adjacent elements.
            begins = free
            total = 0
            for entry in range(begin[p], begin[p] + length[p]):
                if entry < begin[p] + elements[p]:
                    e = pool[entry]
                    if not alive[e]:
                        continue
                    source, until = begin[e], begin[e] + length[e]
                    alive[e] = False
                else:
                    source, until = int(entry), int(entry + 1)
                for place in range(source, until):
                    i = pool[place]
                    if weight[i] > 0:
                        total += weight[i]
                        weight[i] = -weight[i]
                        pool[free] = i
                        free += 1
                        if group[i] == current_group:
                            _unlink(head, following, previous, degree[i], i)
            ends = free
            # Count the variables of each adjacent element that are outside the new element.
            mark += n + 1
            for entry in range(begins, ends):
                i = pool[entry]
                for place in range(begin[i], begin[i] + elements[i]):
                    e = pool[place]
                    if alive[e]:
                        outside[e] = (outside[e] if outside[e] >= mark else size[e] + mark) + weight[i]
            for entry in range(begins, ends):
                i = pool[entry]
                target = begin[i]
                beyond = 0
                digest = int(p)
                rest = 0
                for place in range(begin[i] + elements[i], begin[i] + length[i]):
                    j = pool[place]
                    if weight[j] > 0:
                        beyond += weight[j]
                        digest += j
                        kept[rest] = j
                        rest += 1
                for place in range(begin[i], begin[i] + elements[i]):
                    e = pool[place]
                    if not alive[e]:
                        continue
                    if outside[e] > mark:
                        beyond += outside[e] - mark
                        digest += e
                        pool[target] = e
                        target += 1
                    else:
                        alive[e] = False
                if beyond == 0 and group[i] == current_group:  # no neighbor of i is outside the new element
                    total += weight[i]
                    merged -= weight[i]
                    weight[i] = 0
                    absorber[i] = p
                    continue
                pool[target] = p
                elements[i] = target + 1 - begin[i]
                for j in range(rest):
                    pool[target + 1 + j] = kept[j]
                length[i] = elements[i] + rest
                degree[i] = min(degree[i], beyond)
                code[i] = digest % n
                chain[i] = bucket[code[i]]
                bucket[code[i]] = i
            for entry in range(begins, ends):  # merge variables with equal lists
                i = pool[entry]
                if weight[i] == 0:
                    continue
                at_code = code[i]
                i, bucket[at_code] = bucket[at_code], -1
                while i != -1 and chain[i] != -1:
                    stamp += 1
                    for place in range(begin[i], begin[i] + length[i]):
                        stamp_of[pool[place]] = stamp
                    before, j = i, chain[i]
                    while j != -1:
                        equal = length[j] == length[i] and elements[j] == elements[i] and group[j] == group[i]
                        if equal:
                            for place in range(begin[j], begin[j] + length[j]):
                                if stamp_of[pool[place]] != stamp:
                                    equal = False
                                    break
                        if equal:
                            weight[i] += weight[j]
                            weight[j] = 0
                            absorber[j] = i
                            chain[before] = chain[j]
                        else:
                            before = j
                        j = chain[j]
                    i = chain[i]
            done += merged
            free = begins
            for entry in range(begins, ends):
                i = pool[entry]
                if weight[i] == 0:
                    continue
                weight[i] = -weight[i]
                degree[i] = min(degree[i] + total - weight[i], int(n - done - weight[i]))
                if group[i] == current_group:
                    min_degree = min(min_degree, degree[i])
                    _link(head, following, previous, degree[i], i)
                pool[free] = i
                free += 1
            begin[p], length[p], size[p] = begins, free - begins, total
            alive[p] = free > begins
            weight[p] = 0
            pivots[count] = p
            count += 1
        first = last
    return _steps(pivots[:count], absorber)


@compiled
def _link(
    head: NDArray[np.int32], following: NDArray[np.int32], previous: NDArray[np.int32], degree: int, i: int
) -> None:
    """Put variable i at the head of the linked list of the variables with this degree.

    head[degree] is the first variable of the list, and `following` and `previous` are the neighbors of each variable in
    its list; -1 for none.
    """
    after = head[degree]
    following[i], previous[i] = after, -1
    if after != -1:
        previous[after] = i
    head[degree] = i


@compiled
def _unlink(
    head: NDArray[np.int32], following: NDArray[np.int32], previous: NDArray[np.int32], degree: int, i: int
) -> None:
    """Take variable i out of the linked list of the variables with this degree.

    head[degree] is the first variable of the list, and `following` and `previous` are the neighbors of each variable in
    its list; -1 for none.
    """
    if previous[i] == -1:
        head[degree] = following[i]
    else:
        following[previous[i]] = following[i]
    if following[i] != -1:
        previous[following[i]] = previous[i]


@compiled
def _compact(
    pool: NDArray[np.int32],
    begin: NDArray[np.int64],
    length: NDArray[np.int32],
    weight: NDArray[np.int32],
    alive: NDArray[np.bool_],
    needed: int,
) -> tuple[NDArray[np.int32], int]:
    """Copy the lists that are in use from `pool` to a new array with space for `needed` more entries.

    List i is pool[begin[i]:begin[i] + length[i]]; it is in use if weight[i] is positive or if alive[i] is true.
    Returns the new array, and the total length of the lists in it. `begin` is changed in place.
    """
    total = 0
    for i in range(len(begin)):
        if weight[i] > 0 or alive[i]:
            total += length[i]
    compact = np.empty(max(len(pool), 2 * total + needed), np.int32)
    free = 0
    for i in range(len(begin)):
        if weight[i] > 0 or alive[i]:
            for entry in range(length[i]):
                compact[free + entry] = pool[begin[i] + entry]
            begin[i] = free
            free += length[i]
    return compact, free


@compiled
def _steps(pivots: NDArray[np.int32], absorber: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the number of the step (n,) in which each variable is eliminated.

    `pivots` lists the variables that were eliminated themselves, in order. Any other variable i was merged into the
    variable absorber[i] and eliminated with it; absorber is -1 for pivots.
    """
    n = len(absorber)
    step = np.empty(n, np.int64)
    for number in range(len(pivots)):
        step[pivots[number]] = number
    for i in range(n):
        root = i
        while absorber[root] != -1:
            root = absorber[root]
        step[i] = step[root]
    return step
