"""The runner: claims what is due, starts scripts, hears them, and ends attempts."""
