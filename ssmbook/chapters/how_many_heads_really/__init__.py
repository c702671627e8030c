"""The chapter *how-many-heads-really*."""
