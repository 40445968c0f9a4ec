"""Jobs, their queue and workers, and the stores that they share with the HTTP service.

May import `glle_engine`. `base`, `records`, `observability`, `connections` and `storage` come first, each
importing only packages before it; then `jobs`, `analyses`, `stores`, `execution` and `operations`. Start with `stores`.
"""
