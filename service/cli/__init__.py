"""Commands of the server: `glle up`, `serve`, `worker`, `keys`, `backup`, `doctor`, `store`, `settings`.

May import every package of `service`. Start with `main`.
"""
