# Run the program $0 with the first $1 bytes of the input as its own. The input is complete before
# the program begins: nothing reads its answer while we send. The pod is in use until the program
# ends or the input does: that is the end of the client, of which a blocked writer hears nothing.
touch "$SCRATCH/used"
input=$SCRATCH/input.$$
head -c "$1" >"$input"
exec 3<&0
while sleep "$((IDLE_SECONDS / 3))"; do touch "$SCRATCH/used"; done >/dev/null 2>&1 3<&- &
in_use=$!
{ cat; kill "$in_use"; } <&3 >/dev/null 2>&1 &
(eval "$0") <"$input" 3<&-
rm -f "$input"
kill "$in_use"
