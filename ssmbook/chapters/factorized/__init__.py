"""The chapter *factorized*."""
