"""The chapter *tasks*."""
