# Which of these paths (one per line) are there?
while IFS= read -r path; do
  if [ -d "$path" ]; then mark folder "$path"
  elif [ -e "$path" ]; then mark file "$path"
  elif hidden "$path"; then mark denied "$path"
  else mark missing "$path"; fi
done
