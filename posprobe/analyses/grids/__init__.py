"""What is computed of patches on a grid: codes of rows and columns, surfaces, mosaics."""
