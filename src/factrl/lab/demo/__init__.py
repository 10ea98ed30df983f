"""The demo: a small real model learns to say when it does not know, on a laptop CPU, in ten minutes."""
