# Names in a folder, or the file itself.
if [ -d "$path" ]; then
  if [ ! -r "$path" ]; then mark denied; exit; fi
  mark folder; find "$path" -mindepth 1 -maxdepth 1 -printf '%f\0'
elif [ -e "$path" ]; then mark file
elif hidden "$path"; then mark denied
else mark missing; fi
