"""Bridges: factrl's rewards in the hands of other trainers."""
