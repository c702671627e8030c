"""Exercises: ``check("chapter/exercise", answer)`` returns right, or wrong with a hint."""

from headsandstates.exercises.grading import check, grader

__all__ = ["check", "grader"]
