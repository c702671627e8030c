"""Coefficients that read the pair (x_i, x_j): the count for almost every input, and bounded heads for all."""
