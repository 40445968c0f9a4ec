"""Operations: health checks, embedded Redis servers, backups.

May import every package of `worker`. Start with `health`.
"""
