"""The chapter *gradient-flow*."""
