# Pieces of a job's logs. `wanted` has one "stream offset" per line; without any, `tail` lines of each.
[ -d "${job_dir%/*}" ] || { mark away "${job_dir%/*}"; exit; }
cd "$job_dir/slurm-logs" 2>/dev/null || { mark done; exit; }
# How many attempts have ended: when that grows, the job may have ended.
mark exits "$(ls "$job_dir"/claims/*/exit 2>/dev/null | wc -l)"
# An attempt whose submitter died is known by its claim alone; one may be noted twice.
attempts() {
  { cut -d' ' -f2 "$job_dir/submissions"; cat "$job_dir"/claims/*/owner; } 2>/dev/null |
    grep '^[0-9]' | awk '!seen[$0]++'
}
# Names of streams and their files, in order.
streams() {
  for attempt in $(attempts); do
    folder=$name-$attempt
    for stream in out err; do
      if [ -s "$folder/main.out" ] || [ -s "$folder/main.err" ]; then
        echo "$attempt.$stream $folder/main.$stream"
      else
        # A job that did not get to its tasks has only what Slurm and the batch script said.
        echo "$attempt.batch.$stream batch-$attempt.$stream"
      fi
    done
  done
}
# Where the last `tail` lines of all of them begin: counted from the end.
begins() {
  left=$tail
  streams | sed '1!G;h;$!d' | while read -r stream file; do
    [ -f "$file" ] || continue
    lines=$(tail -n "$left" "$file" | grep -c '')
    echo "$stream $(($(wc -c < "$file") - $(tail -n "$left" "$file" | wc -c)))"
    left=$((left - lines))
  done
}
[ -z "$tail" ] || wanted=$(begins)
streams | while read -r stream file; do
  [ -f "$file" ] || continue
  size=$(wc -c < "$file"); size=$((size))
  from=$(printf '%s\n' "$wanted" | sed -n "s/^$stream //p")
  from=${from:-0}
  mark stream "$stream $from $size"
  [ "$from" -ge "$size" ] || tail -c "+$((from + 1))" "$file" | head -c "$limit"
done
mark done
