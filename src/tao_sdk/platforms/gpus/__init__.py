"""The GPUs of a machine: which there are, and who has them. Shared by platforms."""
