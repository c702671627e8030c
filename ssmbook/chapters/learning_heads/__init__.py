"""The chapter *learning-heads*."""
