# Everything that explains how the last attempts of jobs ended. A table follows: job id, folder,
# token, name.
read_last() { [ ! -r "$1" ] || tail -n 1 "$1"; }
last() { [ ! -s "$3" ] || { mark "$1"; tail -c "+$(($2 + 1))" "$3" | tail -n 400 | tail -c 131072; }; }
while read -r job_id job_dir token name; do
  mark job "$job_id"
  newest=$(read_last "$job_dir/submissions" | cut -d' ' -f2)
  claim=$(grep -ls '^[0-9]' "$job_dir/claims/$token".*.*/owner | sort -V | tail -n 1)
  claim=${claim%/owner}
  [ -z "$claim" ] || newest=$(cat "$claim/owner")
  # What a requeued job had written before is about something else.
  out=0 err=0 batch=0
  [ ! -r "$claim/log_starts" ] || read -r out err batch < "$claim/log_starts"
  last out "$out" "$job_dir/slurm-logs/$name-$newest/main.out"
  last err "$err" "$job_dir/slurm-logs/$name-$newest/main.err"
  last batch "$batch" "$job_dir/slurm-logs/batch-$newest.err"
  [ ! -r "$job_dir/env/$job_id.sh" ] || { mark env; cat "$job_dir/env/$job_id.sh"; }
done
