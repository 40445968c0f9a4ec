"""Tables of docs/explanation/reliability.md: chaos, degraded servers, several machines and the soak test."""
