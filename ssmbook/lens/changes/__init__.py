"""What changes layers of a model: other heads in the place of their own, and modules to train there."""
