"""A run: its settings, data, folder, journal and progress."""
