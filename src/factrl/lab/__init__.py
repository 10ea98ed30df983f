"""The demo: what a reward teaches a small real model (`factrl.lab.demo`)."""
