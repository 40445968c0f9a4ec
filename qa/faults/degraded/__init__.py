"""Faults of servers, disks and network: answers must be right or 503, never wrong."""
