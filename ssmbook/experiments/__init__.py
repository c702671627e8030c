"""The experiments of the book's last part: tokens, layers and training that a chapter is too short for."""

from ssmbook.experiments import gradient_flow, language, learning_heads, results, students, tasks, training

__all__ = ["gradient_flow", "language", "learning_heads", "results", "students", "tasks", "training"]
