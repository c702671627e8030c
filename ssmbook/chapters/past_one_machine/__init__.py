"""The page *past-one-machine*."""
