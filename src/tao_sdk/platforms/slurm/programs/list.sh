# Names in a folder, or the file itself.
if [ -d "$path" ]; then
  mark folder; find "$path" -mindepth 1 -maxdepth 1 -printf '%f\0'
elif [ -e "$path" ]; then mark file
else mark missing; fi
