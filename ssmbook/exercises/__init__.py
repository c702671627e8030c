"""Exercises: ``check("chapter/exercise", answer)`` says right, or wrong with a hint."""

from ssmbook.exercises.grading import check, grader

__all__ = ["check", "grader"]
