"""Log lines and the ids that they contain, the records of live workers, and the counters of a deployment.

May import `base` and `records`. Start with `logging`.
"""
