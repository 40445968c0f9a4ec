"""`make capacity`: what everything costs, by real processes; laws of it, a simulation, and docs/how-to/scaling.md."""
