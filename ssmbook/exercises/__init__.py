"""``check("chapter/exercise", answer)`` says right, or wrong with a hint; graders lie with their chapters."""

from ssmbook.exercises._grader import Verdict, agrees, check, close, grader, judged

__all__ = ["Verdict", "agrees", "check", "close", "grader", "judged"]
