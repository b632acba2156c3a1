"""What a table is a sum of: background, waves, rotations, and the budget of variance.

Read in this order: `dictionary`, `mixture`, `wave_scores`, `waves`, `planes`, `budget`.
"""
