"""What is computed of any table of positions, on a line or a grid."""
