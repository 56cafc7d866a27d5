# Everything that explains how the last attempt of a job ended.
read_last() { [ ! -r "$1" ] || tail -n 1 "$1"; }
newest=$(read_last "$job_dir/submissions" | cut -d' ' -f2)
claim=$(ls -d "$job_dir/claims/$token".*.* 2>/dev/null | grep '\.[0-9]*\.[0-9]*$' | sort -V | tail -n 1)
[ ! -s "$claim/owner" ] || newest=$(cat "$claim/owner")
# What a requeued job had written before is about something else.
out=0 err=0 batch=0
[ ! -r "$claim/log_starts" ] || read -r out err batch < "$claim/log_starts"
last() { [ ! -s "$3" ] || { mark "$1"; tail -c "+$(($2 + 1))" "$3" | tail -n 400 | tail -c 131072; }; }
last out "$out" "$job_dir/slurm-logs/$name-$newest/main.out"
last err "$err" "$job_dir/slurm-logs/$name-$newest/main.err"
last batch "$batch" "$job_dir/slurm-logs/batch-$newest.err"
[ ! -r "$job_dir/env/$job_id.sh" ] || { mark env; cat "$job_dir/env/$job_id.sh"; }
