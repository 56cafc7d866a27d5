# Remove what a job left: its container, its folder, its results (a folder, or nothing).
docker rm -f "tao-job-$job_id" >/dev/null 2>&1
rm -rf -- "$base/jobs/$job_id"
if [ -n "$results" ]; then
  # A container writes as root; the user of an instance may become that.
  rm -rf -- "$results" 2>/dev/null || sudo -n rm -rf -- "$results" 2>/dev/null
fi
if [ -e "$base/jobs/$job_id" ] || { [ -n "$results" ] && [ -e "$results" ]; }; then mark failed; else mark done; fi
