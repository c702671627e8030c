"""Real coefficients that do not depend on the input: counts, floors, and heads that attain them."""
