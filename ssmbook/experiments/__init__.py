"""Set-ups of the experiments: tokens, layers and training that a chapter is too short for."""
