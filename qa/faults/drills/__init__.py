"""Drills with real processes: upgrades between versions, and restored backups."""
