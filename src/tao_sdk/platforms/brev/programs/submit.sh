# Stage the folders of jobs, which are in an archive that was copied here, and start them. `jobs` has
# an id and a token per line. Each folder comes to its place by a rename, which succeeds once: that is
# the claim. A process that gave the job up has put another folder there.
new=$base/incoming/staged-$nonce
if [ -e "$HOME/$archive" ]; then
  if ! said=$({ mkdir -p "$new" "$base/jobs" && tar -xf "$HOME/$archive" -C "$new"; } 2>&1); then
    mark unwritable "$said"; rm -rf "$new"; exit
  fi
fi
while read -r job_id token; do
  [ -n "$job_id" ] || continue
  job=$base/jobs/$job_id
  [ ! -d "$new/$job_id" ] || mv -T "$new/$job_id" "$job" 2>/dev/null
  # Also true if this program runs for the second time.
  if [ "$(cat "$job/token" 2>/dev/null)" = "$token" ]; then supervise "$job_id"; mark submitted "$job_id"
  elif [ -e "$job/withdrawn" ]; then mark withdrawn "$job_id"
  else mark lost "$job_id did not arrive"
  fi
done <<END
$jobs
END
rm -rf "$new" "$HOME/$archive"
