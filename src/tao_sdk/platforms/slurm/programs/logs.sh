# Pieces of a job's logs. `wanted` has one "stream offset" per line; without any, `tail` lines of each.
cd "$job_dir/slurm-logs" 2>/dev/null || { mark done; exit; }
for attempt in $(sed 's/^[0-9]* //; s/ .*//' "$job_dir/submissions" 2>/dev/null); do
  folder=$name-$attempt
  # A job that never got to its tasks has only what Slurm and the batch script said.
  [ -s "$folder/main.out" ] || [ -s "$folder/main.err" ] || folder=batch-$attempt
  for stream in out err; do
    file=$folder/main.$stream; [ -d "$folder" ] || file=$folder.$stream
    [ -f "$file" ] || continue
    size=$(wc -c < "$file"); size=$((size))
    from=$(printf '%s\n' "$wanted" | sed -n "s/^$attempt.$stream //p")
    if [ -z "$from" ] && [ -n "$tail" ]; then
      from=$((size - $(tail -n "$tail" "$file" | wc -c)))
    fi
    from=${from:-0}
    mark stream "$attempt.$stream $from $size"
    [ "$from" -ge "$size" ] || tail -c "+$((from + 1))" "$file" | head -c "$limit"
  done
done
mark done
