"""A small but real trainer that behaves like a TAO container: see README.md."""
