"""Benchmarks, one file each: settings are a config, results are rows, and nothing is printed."""
