"""The lab: what a reward teaches, seen in minutes on a model world."""
