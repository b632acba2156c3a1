"""Numbers of a table as it stands: similarity, components, norms, spectra, probes."""
