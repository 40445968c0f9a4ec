"""Programs that test a whole deployment: chaos, load, soak, faults, hostile bodies, several hosts, fuzzing, audits."""
