# A piece of a job's log: `limit` bytes from `from`, or its last `tail` lines.
job=$base/jobs/$job_id
[ -d "$job" ] || { mark missing; exit; }
size_of() { if [ -f "$1" ]; then echo "$(($(wc -c < "$1")))"; else echo 0; fi; }
log=$job/log
size=$(size_of "$log")
# After a restart the log is read from Docker again, from its beginning.
again=$(size_of "$log.again")
if [ "$again" -gt "$size" ]; then log=$log.again size=$again; fi
if [ -n "$tail" ]; then from=$((size - $(head -c "$size" "$log" 2>/dev/null | tail -n "$tail" | wc -c))); fi
mark log "$from $size"
[ "$from" -ge "$size" ] || tail -c "+$((from + 1))" "$log" | head -c "$limit"
mark done
