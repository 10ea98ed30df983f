"""Training on one machine: TRL's trainers with factrl's rewards.  Needs the extra `train`."""
