"""Cache of draws: one Redis hash per lane group, with two fields per draw.

Field `head:<index>` is JSON: the caller's metadata, and the arrays' names, dtypes and shapes. Field `data:<index>` is
the arrays' concatenated bytes. One command writes or reads both, so a draw is visible completely or not at all, and
writers of other draws of the group do not disturb it. One command creates the groups of several draws, whose fields
follow. A group that is evicted in between has no expiry until it is created again. A draw larger than `PIECE` has a
separate entry (`DrawKey.cache_key`), to which an empty head refers. The object store has one object per draw, under the
same key.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from worker.base.versions import versioned
from worker.records.cache_entry import PIECE, Entry
from worker.records.draws import LANE_GROUP, parse_group_key
from worker.records.ids import text
from worker.storage.array_cache import SCANNED, bytes_of
from worker.storage.tiered_cache import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from worker.records.cache_entry import Array
    from worker.records.draws import DrawKey
    from worker.storage.tiered_cache import Tier, TieredCache

T = TypeVar("T")

SEPARATE = b""  # the head of a draw with a separate entry


class DrawCache:
    """Cache of draws in a tiered cache.

    `arrays_id` names a posterior's arrays (`PosteriorRecord.arrays_id`).

    Parameters
    ----------
    cache
        The cache of all entries.

    """

    def __init__(self, cache: TieredCache) -> None:
        self._cache = cache

    def get(self, arrays_id: str, key: DrawKey) -> Entry | None:
        """Return a draw, its arrays read-only, or None if a part is missing."""
        return self.get_many(arrays_id, [key])[0]

    def get_many(self, arrays_id: str, keys: Sequence[DrawKey]) -> list[Entry | None]:
        """Return draws, each as `get` does; those of one lane group in one command."""
        groups = list(lane_groups(arrays_id, keys))
        write = partial(self._write, arrays_id, _named(arrays_id, keys), groups=groups)
        stored = partial(self._cache.stored_entries, write=write)
        return self._entries(arrays_id, keys, self._cache.get_many, stored)

    def view(self, arrays_id: str, key: DrawKey) -> Entry | None:
        """Return a draw as `views` does."""
        return self.views(arrays_id, [key])[0]

    def views(self, arrays_id: str, keys: Sequence[DrawKey]) -> list[Entry | None]:
        """Return draws for partial reads: large arrays of the store are `LazyArray`s."""
        return self._entries(arrays_id, keys, self._cache.views, self._cache.stored_views)

    def heads(self, arrays_id: str, keys: Sequence[DrawKey]) -> list[dict[str, Any] | None]:
        """Return the metadata of draws; those of one lane group in one command."""
        replies = self._read(arrays_id, keys, head_fields)
        heads = {key: json.loads(head)["meta"] for key, (head,) in replies.items() if head}
        return self._fill(arrays_id, keys, heads, replies, self._cache.heads, self._cache.stored_heads)

    def contains(self, arrays_id: str, keys: Sequence[DrawKey]) -> list[bool]:
        """Return for each draw whether it is cached; only lane groups in the subject's index are read."""
        groups = dict.fromkeys(key.group_key(arrays_id) for key in keys)
        possible = set(groups)
        if len(groups) > 1:
            may_contain = self._cache.may_contain(_subject(arrays_id), list(groups))
            possible = {group for group, is_possible in zip(groups, may_contain, strict=True) if is_possible}
        candidates = [key for key in keys if key.group_key(arrays_id) in possible]
        replies = self._read(arrays_id, candidates, head_fields)
        present = {key: True for key, (head,) in replies.items() if head}
        found = self._fill(arrays_id, keys, present, replies, self._cache.contains, self._cache.stored)
        return list(map(bool, found))

    def put(
        self,
        arrays_id: str,
        entries: Mapping[DrawKey, Entry],
        tier: Tier = "cache",
        *,
        prepare: Sequence[DrawKey] | None = None,
    ) -> None:
        """Write draws to their tier; raises as `TieredCache.put_with`.

        Parameters
        ----------
        prepare
            The draws whose lane groups are indexed and created now, so that later calls for them pass none; None: those
            of the entries.

        """
        keys = _named(arrays_id, entries)
        named = {name: entries[key] for name, key in keys.items()}
        groups = list(lane_groups(arrays_id, entries if prepare is None else prepare))
        self._cache.put_with(partial(self._write, arrays_id, keys, groups=groups), named, tier)

    def delete(self, arrays_id: str, key: DrawKey) -> None:
        """Remove a draw, if it is cached."""
        self._cache.client.hdel(key.group_key(arrays_id), *entry_fields(key))
        self._cache.delete(key.cache_key(arrays_id))

    def all(self) -> Iterator[tuple[str, DrawKey]]:
        """Yield (name of the arrays, draw) for the draws in Redis, perhaps one of them twice."""
        client = self._cache.client
        for raw in client.scan_iter(match=versioned(f"{LANE_GROUP}:*"), count=SCANNED):
            arrays_id, draws = parse_group_key(text(raw).removeprefix(versioned("")))
            fields = set(map(text, client.hkeys(raw)))
            yield from ((arrays_id, draw) for draw in draws if fields.issuperset(entry_fields(draw)))

    def _entries(
        self,
        arrays_id: str,
        keys: Sequence[DrawKey],
        separate: Callable[[list[str]], list[Entry | None]],
        stored: Callable[[list[str]], list[Entry | None]],
    ) -> list[Entry | None]:
        replies = self._read(arrays_id, keys, entry_fields)
        entries: dict[DrawKey, Entry] = {}
        for key, (head, data) in replies.items():
            if head == SEPARATE:  # its read is counted with that of the separate entry
                continue
            entry = parse_entry(head, data)
            self._cache.count_read(is_hit=entry is not None)
            if entry is not None:
                entries[key] = entry
        return self._fill(arrays_id, keys, entries, replies, separate, stored)

    def _read(
        self, arrays_id: str, keys: Sequence[DrawKey], fields: Callable[[DrawKey], list[str]]
    ) -> dict[DrawKey, list[bytes | None]]:
        """Return the values of each draw's fields, with one command per lane group, in one round trip."""
        groups = lane_groups(arrays_id, keys)
        wanted = {name: [field for key in members for field in fields(key)] for name, members in groups.items()}
        if len(wanted) == 1:  # a pipeline takes a third longer
            replies: list[list[Any]] = [self._cache.client.hmget(*item) for item in wanted.items()]
        else:
            with self._cache.client.pipeline(transaction=False) as pipeline:
                for item in wanted.items():
                    pipeline.hmget(*item)
                replies = pipeline.execute() if wanted else []
        values: dict[DrawKey, list[bytes | None]] = {}
        for members, reply in zip(groups.values(), replies, strict=True):
            width = len(reply) // len(members)
            values.update((key, reply[width * i : width * (i + 1)]) for i, key in enumerate(members))
        return values

    def _fill(
        self,
        arrays_id: str,
        keys: Sequence[DrawKey],
        cached: Mapping[DrawKey, T],
        replies: Mapping[DrawKey, list[bytes | None]],
        separate: Callable[[list[str]], Sequence[T | None]],
        stored: Callable[[list[str]], Sequence[T | None]],
    ) -> list[T | None]:
        """Return the cached values, those of separate entries, and those of the store."""

        def others(missing: list[DrawKey]) -> list[T | None]:
            apart = {key: None for key in missing if key in replies and replies[key][0] == SEPARATE}
            absent = [key for key in missing if key not in apart]
            values: dict[DrawKey, T | None] = {}
            for part, read in ((list(apart), separate), (absent, stored)):
                if part:
                    values.update(zip(part, read([key.cache_key(arrays_id) for key in part]), strict=True))
            return [values[key] for key in missing]

        return fill(list(keys), [cached.get(key) for key in keys], others)

    def _write(
        self, arrays_id: str, keys: Mapping[str, DrawKey], entries: Mapping[str, Entry], *, groups: Sequence[str]
    ) -> None:
        """Write named draws to the cache, each lane group by one command after that which prepares `groups`."""
        cache = self._cache
        items: defaultdict[str, list[Any]] = defaultdict(list)
        separate: dict[str, Entry] = {}
        for name, entry in entries.items():
            cache.check_size(entry.nbytes, name)
            key = keys[name]
            if entry.nbytes > PIECE:
                separate[name] = entry
                head, data = SEPARATE, b""
            else:
                head, data = pack_entry(entry)
            head_field, data_field = entry_fields(key)
            items[key.group_key(arrays_id)] += [head_field, head, data_field, data]
        if separate:
            cache.put_many(separate)
        with cache.client.pipeline(transaction=False) as pipeline:
            if groups:
                cache.prepare_hashes(pipeline, _subject(arrays_id), groups)
            for group, values in items.items():
                pipeline.hset(group, items=values)
            pipeline.execute()


def lane_groups(arrays_id: str, keys: Iterable[DrawKey]) -> dict[str, list[DrawKey]]:
    """Return the draws of each lane group, by the group's key."""
    groups: defaultdict[str, list[DrawKey]] = defaultdict(list)
    for key in keys:
        groups[key.group_key(arrays_id)].append(key)
    return dict(groups)


def head_fields(key: DrawKey) -> list[str]:
    """Return the field of a draw's metadata."""
    return [f"head:{key.index}"]


def entry_fields(key: DrawKey) -> list[str]:
    """Return the fields of a draw: metadata and arrays."""
    return [f"head:{key.index}", f"data:{key.index}"]


def pack_entry(entry: Entry) -> tuple[bytes, bytes]:
    """Return the values of `entry_fields`."""
    arrays = [np.asarray(array, order="C") for array in entry.arrays.values()]
    kinds = [[name, array.dtype.str, array.shape] for name, array in zip(entry.arrays, arrays, strict=True)]
    head = json.dumps({"meta": entry.meta, "arrays": kinds}, allow_nan=False)
    return head.encode(), b"".join(map(bytes_of, arrays))


def parse_entry(head: bytes | None, data: bytes | memoryview | None) -> Entry | None:
    """Return the entry of the values of `entry_fields`, None if a part is missing."""
    if not head or data is None:
        return None
    fields = json.loads(head)
    arrays: dict[str, Array] = {}
    rest = memoryview(data)
    for name, dtype, shape in fields["arrays"]:
        size = np.dtype(dtype).itemsize * math.prod(shape)
        if size > len(rest):
            return None
        arrays[name] = np.frombuffer(rest[:size], dtype).reshape(shape)
        rest = rest[size:]
    return None if rest else Entry(fields["meta"], arrays)


def _named(arrays_id: str, keys: Iterable[DrawKey]) -> dict[str, DrawKey]:
    return {key.cache_key(arrays_id): key for key in keys}


def _subject(arrays_id: str) -> str:
    return arrays_id.partition(":")[0]
