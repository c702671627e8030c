"""The chapter *interaction-operator*."""
