"""The GPUs of a machine and their leases, for all platforms that use them."""
