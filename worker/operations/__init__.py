"""What operators need: health checks, the embedded Redis servers of `glle up`, and the permissions of Redis users.

May import every package of `worker`. Start with `health`.
"""
