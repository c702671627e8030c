"""The chapter *gradient-highway*."""
