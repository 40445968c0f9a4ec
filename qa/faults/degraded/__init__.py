"""Faults of servers and disks, in which each answer must be right or an error with status 503 or 507."""
