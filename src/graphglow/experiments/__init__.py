"""Experiments as data: what is run, with which settings, and the rows that come out."""
