"""The run directory: write it, read it back."""
