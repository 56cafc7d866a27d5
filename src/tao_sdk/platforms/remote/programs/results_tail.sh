# `wanted` bytes of the one file of this name (ended by a NUL), from the `first` on, counted from 1.
mark content
{ complaints=$(cd "$folder" && xargs -0 sh -c 'tail -c "+$1" "$3" | head -c "$2"' sh "$first" "$wanted" 2>&1 >&3); } 3>&1
mark complaints; printf '%s' "$complaints" | head -n 3
