"""The chapter *structured-dynamics*."""
