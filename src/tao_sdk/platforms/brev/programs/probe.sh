# Whether this instance can take jobs. Makes the folders that they need.
if ! said=$(mkdir -p "$base/jobs" "$base/incoming" 2>&1); then mark unwritable "$said"; exit; fi
find "$base/incoming" -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf {} + 2>/dev/null
for program in docker flock setsid tar awk base64; do
  command -v "$program" >/dev/null 2>&1 || mark missing "$program"
done
if said=$(docker info -f '{{.InitCommit.ID}}' 2>&1); then
  init=yes; [ "$said" != N/A ] || init=no
  echo "$init" > "$base/init"
  mark docker
else
  mark silent "$(printf '%s' "$said" | tail -n 1)"
fi
mark gpus "$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | grep -c .)"
