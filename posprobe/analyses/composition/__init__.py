"""What a table is a sum of: background, waves, rotations, and the budget of variance.

Read in this order: `dictionary` (components), `mixture` (their fit), `wave_scores`, `waves`,
`clocks`, `slow_changes`, `paths`, `variance_shares`, `planes` (rotations), `formulas`, `ledger`,
`budget`.
"""
