"""Operations: health checks and embedded Redis servers.

May import every package of `worker`. Start with `health`.
"""
