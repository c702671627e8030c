"""The experiments of the book: tokens, layers and training that a chapter is too short for."""

# so that headsandstates.experiments.tasks is there on first use
from headsandstates.experiments import (  # noqa: F401
    conformance,
    conversions,
    diagnose,
    gradient_flow,
    how_many_states,
    language,
    learning_heads,
    results,
    students,
    tasks,
    tasks_longer,
    trained_layers,
)
