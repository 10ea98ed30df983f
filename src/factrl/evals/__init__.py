"""Benchmarks: what to measure (`metrics`) and one module per kind of task (`shortqa`)."""
