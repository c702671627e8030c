"""Fixed softmax coefficients, with a sink and without: counts with their certificates, and constructions."""
