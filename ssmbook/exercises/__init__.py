"""Exercises: ``check("chapter/exercise", answer)`` returns right, or wrong with a hint."""

from ssmbook.exercises.grading import check, grader

__all__ = ["check", "grader"]
