# What became of submissions whose client is gone. A table follows: job id, token.
mkdir -p "$base/jobs" "$base/incoming"
while read -r job_id token; do
  job=$base/jobs/$job_id
  if [ ! -e "$job" ]; then
    # It may be on its way: a job that comes later finds its place taken.
    fence=$base/incoming/fence-$nonce-$job_id
    mkdir "$fence" && : > "$fence/withdrawn" && mv -T "$fence" "$job" 2>/dev/null
    rm -rf "$fence"
  fi
  if [ -e "$job/withdrawn" ]; then rm -f "$base/incoming/$token"; mark none "$job_id"
  elif [ "$(cat "$job/token" 2>/dev/null)" = "$token" ]; then supervise "$job_id"; mark adopted "$job_id"
  fi
done
