"""Programs that run a deployment under faults: killed processes, Redis servers away or full, full disks."""
