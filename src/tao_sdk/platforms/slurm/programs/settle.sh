# What became of submissions whose submitter is gone? A table follows: job id, folder,
# token, cluster.
if ! queue=$(squeue -h -r -u "$me" -t all -o '%i|%j' 2>&1); then mark unreachable "$queue"; exit; fi
umask 077
here=$(cluster_name)
while read -r job_id job_dir token cluster; do
  [ "$cluster" = "$here" ] || continue
  name=tao-job-$job_id
  claim=$job_dir/claims/$token.1.0
  [ ! -r "$job_dir/array" ] || read -r name index < "$job_dir/array"
  id=
  [ ! -r "$job_dir/submissions" ] || read -r _ id _ < "$job_dir/submissions"
  if [ -z "$id" ]; then
    id=$(printf '%s\n' "$queue" | sed -n "s/|$name\$//p" | head -n 1)
    [ -z "$id" ] || [ "$name" = "tao-job-$job_id" ] || id=${id%%_*}_$index
    [ -z "$id" ] || echo "1 $id" >> "$job_dir/submissions"
  fi
  if [ -z "$id" ]; then
    # The job may be on its way to the controller: what starts later finds the claim taken.
    if withdraw 1; then
      rm -f "$job_dir/env/$job_id.sh"
      mark none "$job_id"; continue
    fi
    id=$(cat "$claim/owner" 2>/dev/null)
    case $id in
      withdrawn) mark none "$job_id"; continue;;
      # Its maker is about to write its name, or was killed before: the next settling takes over.
      '') [ -z "$(find "$claim" -prune -mmin +2)" ] || mv "$claim" "$claim.dead"; continue;;
    esac
    echo "1 $id" >> "$job_dir/submissions"
  fi
  mark adopted "$job_id $id"
done
