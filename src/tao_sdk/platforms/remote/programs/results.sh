# Everything below a folder, links not followed: six fields of each entry. What find complains of comes after.
if ! cd "$folder" 2>/dev/null; then
  if [ -e "$folder" ]; then mark denied; else mark missing; fi
  exit
fi
mark root "$(pwd -P)"
mark entries
{ complaints=$(find . -mindepth 1 \( -type d ! \( -readable -executable \) -printf "x$record" -prune \) \
  -o -printf "%y$record" 2>&1 >&3); } 3>&1
mark complaints; printf '%s' "$complaints" | grep -v ': No such file or directory$' | head -n 3
