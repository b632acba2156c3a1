"""What is computed of heads and hidden states, from weights or from sums over contexts."""
