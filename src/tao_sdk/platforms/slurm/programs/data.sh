# Which of these paths are there, and what records do they hold? Two lines for each: what is wanted
# (no; count; fields, and which by comma), and the path.
while IFS= read -r wanted && IFS= read -r path; do
  if [ -d "$path" ]; then
    if [ -r "$path" ] && [ -x "$path" ]; then mark folder; else mark denied; fi
  elif [ -e "$path" ]; then
    if [ ! -r "$path" ]; then mark denied
    elif [ "$wanted" = no ]; then mark file
    elif command -v python3 >/dev/null 2>&1; then
      mark file
      fields=${wanted#fields}; fields=${fields# }
      [ "$wanted" != count ] || fields=
      python3 -c "$checker" "$path" "$sample" "$fields" 2>&1 </dev/null
    elif [ "$wanted" = count ]; then mark file
    else mark file no-python; fi
  elif hidden "$path"; then mark denied
  else mark missing; fi
done
