"""The chapter *trained-layers*."""
