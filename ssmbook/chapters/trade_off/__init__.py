"""The chapter *trade-off*."""
