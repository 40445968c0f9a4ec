"""Object store behind the array cache: any fsspec URL, with an index in the queue's Redis.

May import what `storage` may import. Start with `store`.
"""
