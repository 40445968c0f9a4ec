"""A deployment under faults: killed processes, servers away or full, full disks, lost folders."""
