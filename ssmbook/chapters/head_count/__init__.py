"""The chapter *head-count*."""
