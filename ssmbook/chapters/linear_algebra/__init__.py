"""The appendix page *linear-algebra*."""
