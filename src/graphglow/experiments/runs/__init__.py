"""Runs of cells."""
