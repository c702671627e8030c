"""The chapter *scans*."""
