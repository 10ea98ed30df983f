"""The same rewards over HTTP, for any trainer: `factrl serve`, and `remote` for the other end."""
