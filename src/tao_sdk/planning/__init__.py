"""What a payload means: which input goes where, and where each output will be.

All of it happens on the client, before anything is submitted. What only the container knows (the
job's folder, the destination of results) is filled in there.
"""
