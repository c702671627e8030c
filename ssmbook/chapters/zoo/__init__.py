"""The chapter *zoo*."""
