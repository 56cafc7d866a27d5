# Stop a job. What stops it stays until the job has ended: its container may not be there yet.
job=$base/jobs/$job_id
[ -d "$job" ] || { mark missing; exit; }
[ ! -e "$job/end" ] || { mark ended; exit; }
: > "$job/canceled"
supervise "$job_id"
setsid sh -c '
  n=0
  while [ ! -e "$1/end" ] && [ "$n" -lt 600 ]; do
    docker stop -t "$(cat "$1/stop_seconds")" "$2" >/dev/null 2>&1
    [ -e "$1/end" ] || sleep 0.3
    n=$((n + 1))
  done
' stopper "$job" "tao-job-$job_id" >/dev/null 2>&1 </dev/null &
mark done
