"""A deployment under faults: killed processes, broken networks and disks, several machines, upgrades."""
