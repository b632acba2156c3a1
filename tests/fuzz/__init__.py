"""Hostile input, made by the thousand from seeds, and an oracle that says what should come of it.

One module per class of input has ``make(rng) -> Case``; `runner` runs a case in a forked child with
limits, `oracle` judges what it left. ``python -m tests.fuzz --help`` runs them.
"""
