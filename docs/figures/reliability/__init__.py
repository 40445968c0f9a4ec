"""What the chaos, the degraded servers, the machines and the soak came to: the tables of docs/reliability.md."""
