"""What is computed of positions on a line: spectra, waves, breaks, steps from row to row."""
