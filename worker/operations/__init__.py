"""Operations: health checks, doctor, liveness, embedded Redis servers, backups.

May import every package of `worker`. Start with `health`.
"""
