"""The open-world suite: you do not know what kind of graph you will get.

Targets of many families, each under many conditions, and methods with one setting for all of them.
"""
