"""The chapter *gates-and-depth*."""
