"""The chapter *interaction-rank-gap*."""
