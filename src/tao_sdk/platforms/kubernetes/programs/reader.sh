# The main program of a reader pod: it ends when no program has run in it for a while.
while rm -f "$SCRATCH/used" && sleep "$IDLE_SECONDS" && [ -e "$SCRATCH/used" ]; do :; done
