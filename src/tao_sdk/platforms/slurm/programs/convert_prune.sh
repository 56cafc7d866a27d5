# Remove our squashfs files that no job has used for `keep` seconds, and what conversions left.
cd "$folder" 2>/dev/null || { mark done; exit; }
if ! queue=$(squeue -h -u "$me" -o '%A|%j|%o' 2>&1); then mark unreachable "$queue"; exit; fi
alive() { printf '%s\n' "$queue" | grep -q "^$1|"; }
# Images named in scripts of queued and running jobs are in use. A script that cannot be read: unsure.
scripts() {
  printf '%s\n' "$queue" | while IFS='|' read -r _ name command; do
    case $name in
      tao-array-*) sed 's|.*/\(.*\)|&/sbatch/job_\1.sbatch|' "${command%/*}/list" || exit;;
      tao-job-*) [ -r "$command" ] || exit; printf '%s\n' "$command";;
      *) [ ! -f "$command" ] || printf '%s\n' "$command";;
    esac
  done
}
if ! named=$(scripts 2>/dev/null); then mark unsure; exit; fi
used=$(printf '%s\n' "$named" | while IFS= read -r script; do cat "$script" 2>/dev/null; done)
now=$(date +%s)
find . -maxdepth 1 -type f -user "$me" -regextype posix-extended -regex '.*-[0-9a-f]{12}\.sqsh.*' -printf '%A@ %T@ %s %f\n' |
while read -r read_at made_at size file; do
  newest=${read_at%.*}; [ "$newest" -ge "${made_at%.*}" ] || newest=${made_at%.*}
  case $file in
    *.sqsh.partial.*) ! alive "${file##*.}" || continue;;
    *.sqsh|*.sqsh.replaced.*)
      [ $((now - newest)) -ge "$keep" ] || continue
      ! printf '%s\n' "$used" | grep -qF -- "$folder/${file%.replaced.*}" || continue;;
    *) continue;;
  esac
  rm -f "./$file" && mark removed "$size $file"
done
minutes=$((keep / 60))
find .converting -mindepth 1 -maxdepth 1 -user "$me" -mmin "+$minutes" \
  \( -name 'over.*' -o -name 'new.*' -o -name '*.log' \) -exec rm -rf {} + 2>/dev/null
for left in "$temp"/tao-sqsh-[0-9]*; do
  [ ! -O "$left" ] || alive "${left##*-}" || rm -rf "$left"
done
find "$temp/tao-sqsh-layers-$(id -u)" -type f -amin "+$minutes" -delete 2>/dev/null
mark done
