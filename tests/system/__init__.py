"""Tests of the whole: real servers, real workers, real HTTP."""
