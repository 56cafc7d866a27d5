# Is an image there as a squashfs file? Looks, never creates.
if [ "$(head -c 4 "$cached" 2>/dev/null)" = hsqs ]; then
  mark ready $(($(date +%s) - $(stat -c %Y "$cached"))); exit
fi
job=$(cat "$folder/.converting/${cached##*/}/job" 2>/dev/null)
if [ -n "$job" ] && [ -n "$(squeue -h -j "$job" -o %T 2>/dev/null)" ]; then mark converting "$job"
else mark missing; fi
