"""Runs of experiments: which are missing, how they are made, and the rows that they leave."""
