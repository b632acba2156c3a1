"""The page of every kind of document, one module each. Nothing heavy is imported."""
