# Everything that explains how jobs ended. A table follows: job ids.
while read -r job_id; do
  job=$base/jobs/$job_id
  [ -d "$job" ] || continue
  mark job "$job_id"
  [ ! -e "$job/end" ] || { mark end; cat "$job/end"; }
  mark log; tail -n 400 "$job/log" 2>/dev/null | tail -c 131072
  [ ! -r "$job/env.sh" ] || { mark env; cat "$job/env.sh"; }
done
