"""The chapter *two-ways-to-mix*."""
