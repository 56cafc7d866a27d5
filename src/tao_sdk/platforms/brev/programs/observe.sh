# The state of many jobs in one go. A table follows: job id, a tab, folder of its results or "-".
tab=$(printf '\t')
here= asked=' '
if containers=$(docker ps -a --filter label=tao-sdk-backend=brev --format '{{.Names}} {{.State}}' 2>&1); then
  here=yes
else
  mark silent "$(printf '%s' "$containers" | tail -n 1)"
fi
while IFS=$tab read -r job_id results; do
  [ -n "$job_id" ] || continue
  asked="$asked$job_id "
  job=$base/jobs/$job_id
  if [ -e "$job/withdrawn" ] || [ ! -d "$job" ]; then
    mark unknown "$job_id"
  else
    # Looked at in this order: what ends in between has left its word.
    state=$(printf '%s\n' "$containers" | sed -n "s/^tao-job-$job_id //p")
    if [ -e "$job/end" ]; then
      mark ended "$job_id"; cat "$job/end"
    else
      mark open "$job_id ${state:-none}"
      cat "$job/phase" 2>/dev/null
      if [ -n "$here" ] && flock -n "$job/lock" true; then mark unattended "$job_id"; fi
    fi
  fi
  if [ "$results" != - ] && [ -f "$results/$job_id/tao_result.json" ]; then
    mark record "$job_id"; head -c 65536 "$results/$job_id/tao_result.json"
  fi
done
# Jobs that were not asked about, and that no client has taken the end of.
others=0
for job in "$base"/jobs/*/; do
  job=${job%/}
  [ -e "$job/token" ] && [ ! -e "$job/taken" ] || continue
  case $asked in *" ${job##*/} "*) ;; *) others=$((others + 1));; esac
done
mark others "$others"
