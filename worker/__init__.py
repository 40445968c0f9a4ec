"""Jobs, their queue and the workers that run them, and the stores of data that workers and the HTTP service share.

May import `glle_engine`. `base`, `records`, `observability`, `connections` and `storage` come first, each
importing only packages before it; then `jobs`, `analyses`, `stores`, `execution` and `operations`. Start with `stores`.
"""
