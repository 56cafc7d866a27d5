# The state of many jobs in one go. A table follows: job id, folder, results folder, Slurm's id,
# cluster.
table=$(cat)
if ! queue=$(squeue -h -r -u "$me" -t all -o '%i|%T|%r|%S|%N|%j' 2>&1); then
  mark unreachable "$queue"; exit
fi
mark queue; printf '%s\n' "$queue" | grep -F '|tao-'
# The files of jobs that are not in the queue, or have ended in it. Ids are used again: they count
# only for tasks of arrays, whose name is the array's.
gone=$(
  { printf '%s\n' "$queue"; echo; printf '%s\n' "$table"; } | awk '
    BEGIN { FS = "|" }
    !jobs && $0 == "" { jobs = 1; FS = "[ \t]+"; next }
    !jobs && $2 !~ /^(BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|TIMEOUT)$/ {
      if ($6 ~ /^tao-array-/) alive[$1] = 1; else alive[$6] = 1
      next
    }
    jobs && $0 != "" && !(("tao-job-" $1) in alive) && !(($4) in alive) { print }
  '
)
ids= unsure=
[ -z "$gone" ] || here=$(cluster_name)
while read -r job_id job_dir results _ cluster; do
  [ -n "$job_id" ] || continue
  # A job cannot be judged from another cluster, or without its shared folder (not mounted, say).
  [ "$cluster" = "$here" ] || { mark away "$job_id it is on cluster $cluster, and this is $here"; continue; }
  [ -d "${job_dir%/*}" ] || { mark away "$job_id ${job_dir%/*} is not there"; continue; }
  mark job "$job_id"
  [ ! -e "$job_dir/env/$job_id.sh" ] || mark credentials
  id= code=
  if [ -r "$job_dir/submissions" ]; then
    mark submissions; cat "$job_dir/submissions"
    while read -r _ noted _; do id=$noted ids=$ids,$noted; done < "$job_dir/submissions"
  fi
  for claim in "$job_dir"/claims/*; do
    [ -r "$claim/owner" ] || continue
    owner= code=; read -r owner < "$claim/owner"
    case $owner in [0-9]*) ids=$ids,$owner; id=${id:-$owner};; esac
    [ ! -r "$claim/exit" ] || read -r code < "$claim/exit"
    limit=no; [ ! -e "$claim/walltime" ] || limit=yes
    stopped=no; [ ! -e "$claim/canceled" ] || stopped=yes
    mark claim "${claim##*/} ${owner:-none} ${code:--} $limit $stopped"
  done
  # It may have left no exit code, or that of the attempt before.
  if [ -z "$code" ] || printf '%s\n' "$queue" | grep -q "^$id|FAILED|"; then unsure="$unsure $id"; fi
  for record in "$results"/tao_result.json "$results"/tao_result.*.json; do
    [ -f "$record" ] || continue
    mark record; head -c 65536 "$record"
  done
  # Programs write it into the results, or one folder below; the newest one counts.
  status=$(ls -t "$results"/status.json "$results"/*/status.json 2>/dev/null | head -n 1)
  [ -z "$status" ] || { mark status; tail -c 65536 "$status" | grep . | tail -n 1; }
done <<END
$gone
END
mark end-of-jobs
[ -n "$ids" ] || exit
mark accounting
# An array by its own number: of tasks that never began accounting has one line for all.
ids=$(printf '%s\n' "${ids#,}" | tr , '\n' | sed 's/_.*//' | sort -u | tr '\n' ,)
if reported=$(sacct -X -n -P -j "${ids%,}" -o JobID,JobName,State,ExitCode,NodeList 2>&1); then
  printf '%s\n' "$reported"
  # Accounting lags behind the controller, which matters where the job left no exit code.
  set -- $unsure
  if [ $# -gt 20 ]; then
    mark controller; scontrol -o show job 2>/dev/null | grep -F ' JobName=tao-'
  else
    for id; do mark controller; scontrol -o show job "$id" 2>/dev/null; done
  fi
else
  # Distinguish a cluster without accounting from accounting that does not answer now.
  case $reported in *disabled*|*'not found'*) ;; *) mark silent $reported;; esac
  mark controller; scontrol -o show job 2>/dev/null | grep -F ' JobName=tao-'
fi
